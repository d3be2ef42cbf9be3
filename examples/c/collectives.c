/* Every collective once in C, each with a check of what came out. Run it with:  ciranda run -np 3 ./collectives_c
 *
 * All go through two functions, start() and finish(); only the request differs. Exit code: 0 if all results are right
 * on this rank, 1 otherwise. */
#include <ciranda/ciranda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 64 };

static ciranda_context* world;
static int32_t rank;
static int32_t size;

static void expect(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "rank %d: wrong: %s\n", (int)rank, what);
  exit(1);
}

static ciranda_request request_for(ciranda_collective collective, const char* name, const ciranda_tensor* tensor) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = collective;
  request.name = name;
  request.tensors = tensor;
  request.tensors_count = tensor == NULL ? 0 : 1;
  return request;
}

/* `n` integers: in place, if `output` is `input`. */
static ciranda_tensor numbers(const int32_t* input, int32_t* output, const int64_t* n) {
  const ciranda_tensor tensor = {input, output, n, 1, CIRANDA_INT32, NULL, 0, 0, 0, NULL};
  return tensor;
}

static ciranda_operation* start(const ciranda_request* request) {
  ciranda_operation* operation = NULL;
  expect(ciranda_submit(world, request, &operation) == CIRANDA_OK, "the request was refused");
  return operation;
}

/* Waits. The result that the library allocated, if it did, lives until the operation is released. */
static const int32_t* finish(ciranda_operation* operation, int64_t* count) {
  ciranda_output output = {NULL, 0, NULL, 0};
  if (ciranda_wait(operation) != CIRANDA_OK) {
    fprintf(stderr, "rank %d: %s\n", (int)rank, ciranda_operation_message(operation));
    exit(1);
  }
  if (ciranda_operation_outputs_count(operation) > 0) ciranda_operation_output(operation, 0, &output);
  if (count != NULL) *count = (int64_t)(output.n_bytes / sizeof(int32_t));
  return (const int32_t*)output.data;
}

static void run(const ciranda_request* request) {
  ciranda_operation* operation = start(request);
  finish(operation, NULL);
  ciranda_operation_release(operation);
}

static int32_t sum_of_ranks(void) { return size * (size - 1) / 2; }

static void reductions(void) {
  const int64_t n = size;
  int32_t rows[MOST_RANKS];
  for (int32_t i = 0; i < size; ++i) rows[i] = rank + i;
  ciranda_tensor tensor = numbers(rows, rows, &n);

  ciranda_request request = request_for(CIRANDA_REDUCESCATTER, "my sum", &tensor);
  tensor.output = NULL; /* the library allocates */
  ciranda_operation* operation = start(&request);
  int64_t count = 0;
  const int32_t* mine = finish(operation, &count);
  expect(count == 1 && mine[0] == sum_of_ranks() + size * rank, "reducescatter");
  ciranda_operation_release(operation);

  tensor.output = rows;
  request = request_for(CIRANDA_REDUCE, "sums at the root", &tensor);
  request.root = 0;
  run(&request);
  expect(rows[1 % size] == (rank == 0 ? sum_of_ranks() + size * (1 % size) : rank + 1 % size), "reduce");

  for (int32_t i = 0; i < size; ++i) rows[i] = 1;
  request = request_for(CIRANDA_SCAN, "sums up to this rank", &tensor);
  run(&request);
  expect(rows[0] == rank + 1, "scan");

  for (int32_t i = 0; i < size; ++i) rows[i] = rank + i;
  request = request_for(CIRANDA_ALLREDUCE, "largest", &tensor);
  request.op = CIRANDA_MAX;
  run(&request);
  expect(rows[0] == size - 1, "allreduce");

  /* Two tensors, one request. */
  int32_t ones[2] = {1, 1};
  const int64_t two = 2;
  const ciranda_tensor both[2] = {tensor, numbers(ones, ones, &two)};
  request.name = "both";
  request.op = CIRANDA_SUM;
  request.tensors = both;
  request.tensors_count = 2;
  run(&request);
  expect(rows[0] == size * (size - 1) && ones[1] == size, "grouped allreduce");
}

/* Ranks that bring batches of 1, 2, ... examples: the average over the examples, not over the ranks. */
static void weighted_average(void) {
  const int64_t one = 1;
  const double batch = rank + 1;
  const double expected = (2.0 * size + 1) / 3;
  double loss = batch;
  const ciranda_tensor tensor = {&loss, &loss, &one, 1, CIRANDA_FLOAT64, NULL, 0, 0, 0, NULL};
  ciranda_request request = request_for(CIRANDA_ALLREDUCE, "loss", &tensor);
  request.op = CIRANDA_AVERAGE;
  request.weight = &batch;
  run(&request);
  expect(loss > expected - 1e-12 && loss < expected + 1e-12, "weighted allreduce");
}

/* Requests on two lanes have nothing to do with each other: ranks may make them in different orders, even without
 * names. (Those of one lane then belong together in the order of the calls.) */
static void lanes(void) {
  const int64_t one = 1;
  int32_t values[2] = {1, 10};
  ciranda_operation* operations[2];
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t lane = (i + rank) % 2;
    const ciranda_tensor tensor = numbers(&values[lane], &values[lane], &one);
    ciranda_request request = request_for(CIRANDA_ALLREDUCE, NULL, &tensor);
    request.lane = (uint32_t)lane;
    operations[i] = start(&request);
  }
  for (int32_t i = 0; i < 2; ++i) {
    finish(operations[i], NULL);
    ciranda_operation_release(operations[i]);
  }
  expect(values[0] == size && values[1] == 10 * size, "allreduce on two lanes");
}

static void movements(void) {
  const int64_t n = size;
  int32_t rows[MOST_RANKS];
  for (int32_t i = 0; i < size; ++i) rows[i] = 100 * rank + i;
  ciranda_tensor tensor = numbers(rows, NULL, &n);
  int64_t count = 0;

  /* Row r goes to rank r; behind the rows comes how many came from each rank. */
  ciranda_request request = request_for(CIRANDA_ALLTOALL, "turned", &tensor);
  ciranda_operation* operation = start(&request);
  const int32_t* received = finish(operation, &count);
  expect(count == size && received[size - 1] == 100 * (size - 1) + rank, "alltoall");
  ciranda_output from;
  expect(ciranda_operation_output(operation, 1, &from) == CIRANDA_OK, "alltoall: received splits");
  expect(((const int64_t*)from.data)[0] == 1, "alltoall: received splits");
  ciranda_operation_release(operation);

  /* Rank r brings r rows. */
  const int64_t few = rank;
  ciranda_tensor some = numbers(rows, NULL, &few);
  request = request_for(CIRANDA_ALLGATHER, "all", &some);
  operation = start(&request);
  finish(operation, &count);
  expect(count == sum_of_ranks(), "allgather");
  ciranda_operation_release(operation);

  request = request_for(CIRANDA_GATHER, "all at the root", &some);
  request.root = 0;
  operation = start(&request);
  const int32_t* gathered = finish(operation, &count);
  expect(count == (rank == 0 ? sum_of_ranks() : 0), "gather");

  /* And back: the root says who gets how many. */
  int64_t splits[MOST_RANKS];
  for (int32_t i = 0; i < size; ++i) splits[i] = i;
  ciranda_tensor shared_out = numbers(gathered, NULL, &count);
  shared_out.splits = splits;
  shared_out.splits_count = (size_t)size;
  request = request_for(CIRANDA_SCATTER, "back", &shared_out);
  request.root = 0;
  ciranda_operation* scattered = start(&request);
  const int32_t* again = finish(scattered, &count);
  expect(count == rank && (count == 0 || again[0] == rows[0]), "scatter");
  ciranda_operation_release(scattered);
  ciranda_operation_release(operation);

  tensor.output = rows;
  request = request_for(CIRANDA_BROADCAST, "the last one's", &tensor);
  request.root = size - 1;
  run(&request);
  expect(rows[0] == 100 * (size - 1), "broadcast");
}

/* From rank 0 to the last one. Both submit the same request. */
static void transfer(void) {
  const int64_t one = 1;
  int32_t word = rank == 0 ? 42 : 0;
  const ciranda_tensor tensor = numbers(&word, &word, &one);
  ciranda_request request = request_for(CIRANDA_TRANSFER, "word", &tensor);
  request.root = 0;
  if (size == 1 || (rank != 0 && rank != size - 1)) return;
  request.process_set = ciranda_pair(world, rank == 0 ? size - 1 : 0);
  run(&request);
  expect(word == 42, "send and receive");
}

static void process_set(void) {
  if (size == 1) return;
  int64_t ranks[MOST_RANKS];
  for (int32_t i = 0; i + 1 < size; ++i) ranks[i] = i;
  ciranda_request request = request_for(CIRANDA_ADD_PROCESS_SET, NULL, NULL);
  request.arguments = ranks;
  request.arguments_count = (size_t)(size - 1);
  ciranda_operation* operation = start(&request);
  finish(operation, NULL);
  const int64_t set = ciranda_operation_value(operation);
  ciranda_operation_release(operation);
  if (rank + 1 < size) {
    const int64_t one = 1;
    int32_t value = 1;
    const ciranda_tensor tensor = numbers(&value, &value, &one);
    ciranda_request count = request_for(CIRANDA_ALLREDUCE, "count", &tensor);
    count.process_set = (uint32_t)set;
    run(&count);
    expect(value == size - 1, "allreduce in a process set");
  }
  request.collective = CIRANDA_REMOVE_PROCESS_SET;
  request.arguments = &set;
  request.arguments_count = 1;
  run(&request);
}

/* Rank r has r + 1 batches. Who has no more joins, and counts for nothing; or as zero, where all are divided by. */
static void uneven_batches(void) {
  const int64_t one = 1;
  for (int32_t batch = 0; batch <= rank; ++batch) {
    double gradients[2] = {size, size};
    for (int i = 0; i < 2; ++i) {
      const ciranda_tensor tensor = {&gradients[i], &gradients[i], &one, 1, CIRANDA_FLOAT64, NULL, 0, 0, 0, NULL};
      ciranda_request request = request_for(CIRANDA_ALLREDUCE, i == 0 ? "gradient" : "over all", &tensor);
      request.op = CIRANDA_AVERAGE;
      request.flags = i == 0 ? 0 : CIRANDA_REQUEST_DIVIDE_BY_ALL;
      run(&request);
    }
    const double error = gradients[1] - (size - batch);
    expect(gradients[0] == size, "average of those that have not joined");
    expect(error < 1e-12 && error > -1e-12, "average over all");
  }
  ciranda_request request = request_for(CIRANDA_JOIN, NULL, NULL);
  ciranda_operation* operation = start(&request);
  finish(operation, NULL);
  expect(ciranda_operation_value(operation) >= 0 && ciranda_operation_value(operation) < size, "join");
  ciranda_operation_release(operation);
  request = request_for(CIRANDA_BARRIER, "barrier", NULL);
  run(&request);
}

int main(void) {
  char message[512];
  const ciranda_setting two_lanes = {"CIRANDA_NUM_LANES", "2"};
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = &two_lanes;
  options.settings_count = 1;
  if (ciranda_init(&options, &world, message, sizeof(message)) != CIRANDA_OK) {
    fprintf(stderr, "could not join: %s\n", message);
    return 1;
  }
  rank = ciranda_rank(world);
  size = ciranda_size(world);
  expect(size <= MOST_RANKS, "too many ranks for this example");
  reductions();
  weighted_average();
  lanes();
  movements();
  transfer();
  process_set();
  uneven_batches();
  printf("rank %d of %d: every collective is right\n", (int)rank, (int)size);
  ciranda_shutdown(world);
  return 0;
}
