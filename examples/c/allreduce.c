/* Sums a vector over all ranks in C and checks the sum. Run it with:  ciranda run -np 2 ./allreduce_c
 *
 * Exit code: 0 if the sum is right, 1 otherwise. */
#include <ciranda/ciranda.h>
#include <stdint.h>
#include <stdio.h>

enum { COUNT = 1024 };

/* Rank r brings r + i at place i, so that the sum over n ranks there is n * i + n * (n - 1) / 2. */
static int check(const float* sums, int32_t size) {
  for (int i = 0; i < COUNT; ++i) {
    const float expected = (float)(size * i + size * (size - 1) / 2);
    if (sums[i] != expected) {
      fprintf(stderr, "element %d is %g instead of %g\n", i, (double)sums[i], (double)expected);
      return 1;
    }
  }
  return 0;
}

static int sum_over_ranks(ciranda_context* world, float* values) {
  const int64_t shape[1] = {COUNT};
  const ciranda_tensor tensor = {values, values, shape, 1, CIRANDA_FLOAT32, NULL, 0, 0, 0, NULL};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  ciranda_operation* operation = NULL;
  request.name = "values";
  request.tensors = &tensor;
  request.tensors_count = 1;
  if (ciranda_submit(world, &request, &operation) != CIRANDA_OK) {
    fprintf(stderr, "the request was refused\n");
    return 1;
  }
  const ciranda_status status = ciranda_wait(operation);
  if (status != CIRANDA_OK) {
    fprintf(stderr, "%s: %s\n", ciranda_status_name(status), ciranda_operation_message(operation));
  }
  ciranda_operation_release(operation);
  return status != CIRANDA_OK;
}

int main(void) {
  ciranda_context* world = NULL;
  char message[512];
  if (ciranda_init(NULL, &world, message, sizeof(message)) != CIRANDA_OK) {
    fprintf(stderr, "could not join: %s\n", message);
    return 1;
  }
  const int32_t rank = ciranda_rank(world);
  const int32_t size = ciranda_size(world);
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(rank + i);
  int failed = sum_over_ranks(world, values);
  if (!failed) failed = check(values, size);
  if (!failed) printf("rank %d of %d: the sum of %d elements is right\n", (int)rank, (int)size, (int)COUNT);
  ciranda_shutdown(world);
  return failed;
}
