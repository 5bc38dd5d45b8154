/* Captures of CUDA graphs, of nothing, one on a stream; what CUDA forbids meanwhile is told of.

   What a thread may not call depends on its own mode and on that of captures under way, as CUDA's
   cudaThreadExchangeStreamCaptureMode says. For the tests:

   - stand_in_spoil: from now on every capture fails.
   - stand_in_hold_captures: no capture ends until they are let go on.
   - stand_in_await_capture: wait until one comes to its end. */

#include "stand_in.h"

#include <stdio.h>
#include <time.h>

enum { MOST_CAPTURES = 16 };
static struct capture {
  cudaStream_t stream; /* NULL: none */
  pthread_t thread;
  enum cudaStreamCaptureMode mode;
  int is_spoilt;
} captures[MOST_CAPTURES];
static _Thread_local enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
static int spoils, is_held, waits;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long next_graph = 0x1000;
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;

void stand_in_spoil(int spoil) { spoils = spoil; }

void stand_in_hold_captures(int hold) {
  pthread_mutex_lock(&captures_lock);
  is_held = hold;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&captures_lock);
}
int stand_in_await_capture(int seconds) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += seconds;
  pthread_mutex_lock(&captures_lock);
  while (!waits && !pthread_cond_timedwait(&changed, &captures_lock, &end)) {}
  int found = waits;
  pthread_mutex_unlock(&captures_lock);
  return found;
}

static struct capture *capture_on(cudaStream_t stream) {
  for (int i = 0; i < MOST_CAPTURES; i++)
    if (captures[i].stream == stream) return &captures[i];
  return NULL;
}
int is_capturing(cudaStream_t stream) {
  pthread_mutex_lock(&captures_lock);
  int found = stream && capture_on(stream);
  pthread_mutex_unlock(&captures_lock);
  return found;
}
static int disturbs(struct capture *capture, enum reach reach, cudaStream_t stream) {
  if (!capture->stream) return 0;
  if (reach == WHOLE_DEVICE) return 1;
  if (capture->stream == stream) return 1;
  if (mode == cudaStreamCaptureModeRelaxed || capture->mode == cudaStreamCaptureModeRelaxed) return 0;
  if (pthread_equal(capture->thread, pthread_self())) return 1;
  return mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
}
int is_forbidden(const char *call, enum reach reach, cudaStream_t stream) {
  int found = 0;
  pthread_mutex_lock(&captures_lock);
  for (int i = 0; i < MOST_CAPTURES; i++)
    if (disturbs(&captures[i], reach, stream)) found = captures[i].is_spoilt = 1;
  pthread_mutex_unlock(&captures_lock);
  if (!found) return 0;
  fprintf(stderr, "stand-in: %s during a capture\n", call);
  fail(cudaErrorStreamCaptureUnsupported);
  return 1;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *given) {
  enum cudaStreamCaptureMode before = mode;
  mode = *given;
  *given = before;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode of) {
  pthread_mutex_lock(&captures_lock);
  struct capture *free = capture_on(NULL);
  if (free) *free = (struct capture){stream, pthread_self(), of, spoils};
  pthread_mutex_unlock(&captures_lock);
  return free ? cudaSuccess : fail(cudaErrorIllegalState);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  pthread_mutex_lock(&captures_lock);
  for (waits++; is_held;) {
    pthread_cond_broadcast(&changed);
    pthread_cond_wait(&changed, &captures_lock);
  }
  waits--;
  struct capture *capture = capture_on(stream);
  int is_good = capture && !capture->is_spoilt;
  if (capture) capture->stream = NULL;
  *graph = is_good ? (cudaGraph_t)(next_graph += 16) : NULL;
  pthread_mutex_unlock(&captures_lock);
  return is_good ? cudaSuccess : fail(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  pthread_mutex_lock(&captures_lock);
  struct capture *capture = stream ? capture_on(stream) : NULL;
  *status = !capture              ? cudaStreamCaptureStatusNone
            : capture->is_spoilt ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  pthread_mutex_unlock(&captures_lock);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graph, cudaGraph_t from, unsigned long long flags) {
  *graph = (cudaGraphExec_t)from;
  return cudaSuccess;
}
