/* Streams: what is launched is done as late as CUDA may do it, namely when somebody waits for it.

   So whoever reads too early reads what was there before, and whoever changes pinned memory that is
   still to be copied is told of on standard error. For the tests, which call it by ctypes:

   - stand_in_journal: what was called, in order, a line each, since stand_in_forget.
   - stand_in_hold: nothing that was launched gets done until it is let go; who waits does.
   - stand_in_await: wait until so many copies to the host have been launched since stand_in_forget.
   - stand_in_write: from now on each kernel and each graph writes there, when it is done, which copy
     to the host its result is going to be part of: 1 for the first, and so on. */

#include "stand_in.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STREAMS = 1 << 10 };
enum kind { COPY, KERNEL, HOST_FUNCTION };
struct step {
  enum kind kind;
  char *to, *staged;
  const char *from;
  size_t size;
  uint64_t sum;
  int is_out;
  cudaHostFn_t function;
  void *data;
  struct step *next;
};
struct CUstream_st {
  int number, is_gone;
  long launched, done;
  struct step *first, *last;
};
struct CUevent_st { struct CUstream_st *stream; long at; };

static struct CUstream_st *streams[MOST_STREAMS], legacy;
static int num_streams;
static int is_held;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long outs_launched, outs_done;
static float *written;

/* --- the journal --- */

static char *journal;
static size_t journal_size, journal_room;
static int kernels_in_row;

static void note(const char *format, ...) {
  char line[160];
  va_list given;
  va_start(given, format);
  int length = vsnprintf(line, sizeof line - 1, format, given);
  va_end(given);
  line[length++] = '\n';
  if (journal_size + length > journal_room)
    journal = realloc(journal, journal_room = 2 * (journal_size + length));
  memcpy(journal + journal_size, line, length);
  journal_size += length;
  kernels_in_row = 0;
}

size_t stand_in_journal(char *into, size_t room) {
  pthread_mutex_lock(&lock);
  size_t size = journal_size;
  memcpy(into, journal, size < room ? size : room);
  pthread_mutex_unlock(&lock);
  return size;
}
void stand_in_forget(void) {
  pthread_mutex_lock(&lock);
  journal_size = outs_launched = outs_done = kernels_in_row = 0;
  forget_launched();
  pthread_mutex_unlock(&lock);
}
void stand_in_hold(int hold) {
  pthread_mutex_lock(&lock);
  is_held = hold;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
int stand_in_await(long outs, int seconds) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += seconds;
  pthread_mutex_lock(&lock);
  while (outs_launched < outs && !pthread_cond_timedwait(&changed, &lock, &end)) {}
  int reached = outs_launched >= outs;
  pthread_mutex_unlock(&lock);
  return reached;
}
void stand_in_write(float *address) {
  pthread_mutex_lock(&lock);
  written = address;
  pthread_mutex_unlock(&lock);
}

/* --- what streams do; with the lock taken --- */

static uint64_t sum_of(const char *bytes, size_t size) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < size; i++) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
  return sum;
}

static void do_step(struct step *step) {
  if (step->kind == COPY) {
    if (step->sum && sum_of(step->from, step->size) != step->sum)
      fprintf(stderr, "stand-in: pinned memory was changed before it was copied\n");
    memmove(step->to, step->staged ? step->staged : step->from, step->size);
    outs_done += step->is_out;
  } else if (step->kind == KERNEL) {
    if (written) *written = 1 + outs_done;
  } else {
    pthread_mutex_unlock(&lock);
    step->function(step->data);
    pthread_mutex_lock(&lock);
  }
}

static void do_until(struct CUstream_st *stream, long end) {
  while (is_held && stream->done < end) pthread_cond_wait(&changed, &lock);
  while (stream->done < end && stream->first) {
    struct step *step = stream->first;
    if (!(stream->first = step->next)) stream->last = NULL;
    stream->done++;
    do_step(step);
    free(step->staged);
    free(step);
  }
}

void do_all(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < num_streams; i++) do_until(streams[i], streams[i]->launched);
  pthread_mutex_unlock(&lock);
}

static struct CUstream_st *known(cudaStream_t stream, const char *call) {
  if ((uintptr_t)stream <= 2) return &legacy; /* CUDA's default streams */
  if (stream->is_gone) fprintf(stderr, "stand-in: %s on a stream that is gone\n", call);
  return stream;
}

static void launch(struct CUstream_st *stream, struct step step) {
  struct step *kept = malloc(sizeof *kept);
  *kept = step;
  kept->next = NULL;
  if (stream->last) stream->last->next = kept;
  else stream->first = kept;
  stream->last = kept;
  stream->launched++;
  if (stream == &legacy) do_until(stream, stream->launched);
}

/* --- copies and kernels --- */

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  NOT_WHILE_CAPTURING;
  pthread_mutex_lock(&lock);
  note("copy at once %zu", size);
  memmove(to, from, size);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  enum place source = place_of(from), target = place_of(to);
  if (is_capturing(stream)) {
    /* The graph would copy from there at every replay, when something else lies there. */
    if (source != ON_DEVICE || target != ON_DEVICE)
      is_forbidden("a copy of the host's memory", ONE_CALL, stream);
    return cudaSuccess;
  }
  pthread_mutex_lock(&lock);
  struct CUstream_st *on = known(stream, __func__);
  struct step step = {COPY, .to = to, .from = from, .size = size};
  step.is_out = source == ON_DEVICE && target != ON_DEVICE;
  if (source == PAGEABLE) step.staged = memcpy(malloc(size ? size : 1), from, size);
  if (source == PINNED && size) step.sum = sum_of(from, size);
  static const char *places[] = {"pageable", "pinned", "device"};
  note("copy %s to %s %zu on %d", places[source], places[target], size, on->number);
  launch(on, step);
  if (target == PAGEABLE) do_until(on, on->launched); /* CUDA returns when it is done */
  outs_launched += step.is_out;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
static void launch_noted(cudaStream_t stream, const char *what) {
  struct CUstream_st *on = known(stream, what);
  int in_row = kernels_in_row == on->number + 1 && !strcmp(what, "kernels");
  if (!in_row) note("%s on %d", what, on->number);
  if (!strcmp(what, "kernels")) kernels_in_row = on->number + 1;
  launch(on, (struct step){KERNEL});
}
void launch_kernel(cudaStream_t stream) {
  if (is_capturing(stream)) return;
  pthread_mutex_lock(&lock);
  launch_noted(stream, "kernels");
  pthread_mutex_unlock(&lock);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  launch_noted(stream, "graph");
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  /* replays would call it again */
  if (is_capturing(stream)) return is_forbidden("a host function", ONE_CALL, stream), cudaSuccess;
  pthread_mutex_lock(&lock);
  struct CUstream_st *on = known(stream, __func__);
  note("host function on %d", on->number);
  launch(on, (struct step){HOST_FUNCTION, .function = function, .data = data});
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

/* --- streams and events --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  pthread_mutex_lock(&lock);
  if (num_streams == MOST_STREAMS) abort();
  *stream = streams[num_streams++] = calloc(1, sizeof **stream);
  (*stream)->number = num_streams;
  note("%s %d", flags & cudaStreamNonBlocking ? "stream" : "blocking stream", num_streams);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  struct CUstream_st *on = known(stream, __func__);
  note("end of stream %d", on->number);
  do_until(on, on->launched);
  on->is_gone = 1;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NOT_DURING_CAPTURES(ONE_CALL, stream);
  pthread_mutex_lock(&lock);
  struct CUstream_st *on = known(stream, __func__);
  note("synchronize on %d", on->number);
  do_until(on, on->launched);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  NOT_DURING_CAPTURES(WHOLE_DEVICE, NULL);
  pthread_mutex_lock(&lock);
  note("synchronize all");
  pthread_mutex_unlock(&lock);
  do_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = calloc(1, sizeof **event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  struct CUstream_st *on = known(stream, __func__);
  note("record on %d", on->number);
  event->stream = on;
  event->at = on->launched;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}
static cudaError_t wait_for(cudaEvent_t event) {
  pthread_mutex_lock(&lock);
  if (event->stream) do_until(event->stream, event->at);
  note("waited");
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NOT_WHILE_CAPTURING;
  return wait_for(event);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  NOT_WHILE_CAPTURING;
  if (is_held && event->stream && event->stream->done < event->at) return cudaErrorNotReady;
  return wait_for(event);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return is_capturing(stream) ? cudaSuccess : wait_for(event);
}
