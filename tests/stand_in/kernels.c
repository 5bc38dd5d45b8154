/* Kernels: none computes anything, but each is noted by its name.

   For the tests: stand_in_launched tells what was launched since stand_in_forget, a line each:
   kernels by their mangled names, products and calls of cuDNN by those of their functions. */

#include "stand_in.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- names --- */

enum { MOST_KERNELS = 1 << 17 };
static struct { const void *function; const char *name; } kernels[MOST_KERNELS];

static int place(const void *function) {
  int at = ((uintptr_t)function >> 4) * 2654435761u % MOST_KERNELS;
  while (kernels[at].function && kernels[at].function != function) at = (at + 1) % MOST_KERNELS;
  return at;
}
void __cudaRegisterFunction(void **binary, const char *function, char *symbol, const char *name,
                            int most_threads, uint3 *thread, uint3 *block, dim3 *threads,
                            dim3 *blocks, int *warp) {
  pthread_mutex_lock(&lock);
  int at = place(function);
  kernels[at].function = function, kernels[at].name = name;
  pthread_mutex_unlock(&lock);
}

static char *launched;
static size_t size, room;

void stand_in_call(const char *name) {
  pthread_mutex_lock(&lock);
  size_t length = strlen(name);
  if (size + length + 1 > room) launched = realloc(launched, room = 2 * (size + length + 1));
  memcpy(launched + size, name, length);
  launched[size + length] = '\n';
  size += length + 1;
  pthread_mutex_unlock(&lock);
}
size_t stand_in_launched(char *into, size_t most) {
  pthread_mutex_lock(&lock);
  memcpy(into, launched, size < most ? size : most);
  size_t found = size;
  pthread_mutex_unlock(&lock);
  return found;
}
void forget_launched(void) { size = 0; }

/* --- launches --- */

static _Thread_local struct { dim3 grid, block; size_t shared; cudaStream_t stream; } asked;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
  asked.grid = grid, asked.block = block, asked.shared = shared, asked.stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = asked.grid, *block = asked.block, *shared = asked.shared;
  *(cudaStream_t *)stream = asked.stream;
  return cudaSuccess;
}
static cudaError_t launch(const void *function, dim3 grid, cudaStream_t stream) {
  const char *name = kernels[place(function)].name;
  stand_in_call(name ? name : "a kernel");
  launch_kernel(stream);
  if (grid.x && grid.y && grid.z && grid.y <= 65535 && grid.z <= 65535) return cudaSuccess;
  fprintf(stderr, "stand-in: a grid of %u x %u x %u blocks\n", grid.x, grid.y, grid.z);
  return fail(cudaErrorInvalidConfiguration);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  return launch(function, grid, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t function, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
  return launch(function, grid, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments) {
  return launch(function, config->gridDim, config->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream) {
  return launch(function, grid, stream);
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  return &handle;
}
