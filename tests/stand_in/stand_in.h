/* What the files of the stand-in know of each other. */

#include <cuda_runtime_api.h>
#include <pthread.h>

#pragma GCC visibility push(hidden)

extern pthread_mutex_t lock;

cudaError_t fail(cudaError_t error);

enum place { PAGEABLE, PINNED, ON_DEVICE };
enum place place_of(const void *pointer);

/* Whether the calling thread may not make `call` while a capture is under way, which it then spoils.
   A call of the whole device disturbs every capture, a call on a stream that on this stream, and any
   other only those that the threads' modes do not keep apart. */
enum reach { ONE_CALL, WHOLE_DEVICE };
int is_forbidden(const char *call, enum reach reach, cudaStream_t stream);
#define NOT_WHILE_CAPTURING NOT_DURING_CAPTURES(ONE_CALL, NULL)
#define NOT_DURING_CAPTURES(reach, stream) \
  if (is_forbidden(__func__, reach, stream)) return cudaErrorStreamCaptureUnsupported
int is_capturing(cudaStream_t stream);

void launch_kernel(cudaStream_t stream);
void forget_launched(void);
void do_all(void);

#pragma GCC visibility pop
