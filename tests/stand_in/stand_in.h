/* What cuda.c, streams.c and captures.c know of each other. */

#include <cuda_runtime_api.h>
#include <pthread.h>

#pragma GCC visibility push(hidden)

extern pthread_mutex_t lock;

cudaError_t fail(cudaError_t error);

enum place { PAGEABLE, PINNED, ON_DEVICE };
enum place place_of(const void *pointer);

extern cudaStream_t capturing;

/* Whether a capture is under way, which `call` spoils. */
int is_forbidden(const char *call);
#define NOT_WHILE_CAPTURING \
  if (is_forbidden(__func__)) return cudaErrorStreamCaptureUnsupported

void launch_kernel(cudaStream_t stream);
void do_all(void);

#pragma GCC visibility pop
