/* Captures of CUDA graphs: one at a time, and of nothing; what CUDA forbids meanwhile is told of.

   For the tests: after stand_in_spoil every capture fails. */

#include "stand_in.h"

#include <stdio.h>

cudaStream_t capturing;
static int is_spoilt, spoils;
static long next_graph = 0x1000;

void stand_in_spoil(int spoil) { spoils = spoil; }

int is_forbidden(const char *call) {
  if (!capturing) return 0;
  fprintf(stderr, "stand-in: %s during a capture\n", call);
  is_spoilt = 1;
  fail(cudaErrorStreamCaptureUnsupported);
  return 1;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  capturing = stream;
  is_spoilt = spoils;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  capturing = NULL;
  *graph = is_spoilt ? NULL : (cudaGraph_t)(next_graph += 16);
  return is_spoilt ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = capturing && capturing == stream
                ? (is_spoilt ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive)
                : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graph, cudaGraph_t from, unsigned long long flags) {
  *graph = (cudaGraphExec_t)from;
  return cudaSuccess;
}
