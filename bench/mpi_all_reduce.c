// Times MPI_Allreduce (sum of f32) as `symmetra all-reduce` times its own: fresh data a size,
// checked, median over iterations of the slowest rank. Prints one JSON object a line.
//
//   mpicc -O3 bench/mpi_all_reduce.c -o mpi_all_reduce && mpirun -n 4 ./mpi_all_reduce 1024 16777216 20
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

int main(int argc, char** argv) {
  int rank, world;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (argc != 4) {
    if (rank == 0) fprintf(stderr, "usage: %s MIN_BYTES MAX_BYTES ITERATIONS\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const size_t min_bytes = strtoull(argv[1], NULL, 10), max_bytes = strtoull(argv[2], NULL, 10);
  const int iterations = atoi(argv[3]);
  float *input = malloc(max_bytes), *output = malloc(max_bytes);
  double* times = malloc(sizeof(double) * iterations);
  srand(rank + 1);
  for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= 2) {
    const size_t elements = bytes / sizeof(float);
    for (size_t i = 0; i < elements; ++i) input[i] = (float)rand() / RAND_MAX - 0.5f;
    long wrong = 0;
    for (int iteration = -2; iteration < iterations; ++iteration) {  // two to warm up
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Allreduce(input, output, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      double own = MPI_Wtime() - start, slowest;
      MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (iteration >= 0) times[iteration] = slowest;
    }
    // Every 101st element against a sum in double of the ranks' inputs.
    for (size_t i = 0; i < elements; i += 101) {
      double own = input[i], sum;
      MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      wrong += fabs(sum - output[i]) > 1e-5 * world;
    }
    qsort(times, iterations, sizeof(double), compare);
    if (rank == 0) {
      printf("{\"ranks\":%d,\"device\":\"mpi\",\"op\":\"sum\",\"dtype\":\"f32\",\"bytes\":%zu,\"time_us\":%.2f,\"wrong\":%ld}\n", world,
             bytes, times[iterations / 2] * 1e6, wrong);
    }
  }
  MPI_Finalize();
  return 0;
}
