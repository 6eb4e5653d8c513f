// Norm of rows that are already summed. Blocks take rows in a grid-stride loop. Reads the input twice unless x is
// written.
#pragma once
#include "kernels/norm/epilogue.cuh"

namespace symmetra::kernels {

template <class Element, bool kQuantised, class Args>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_rows(SYMMETRA_ARGS(Args) args) {
  using Operands = Epilogue<Element, kQuantised, Args>;
  float* const shared = platform::shared<float>();
  float* const largest = shared + kNormWords;
  platform::wait_prior();
  for (uint64_t number = platform::block(); number < args.rows; number += platform::blocks()) {
    const Row<Element> row(args.input, number * args.input_pitch, args.hidden);
    const Operands epilogue(args, number);
    const auto weights = [&](uint32_t packet) { return epilogue.weights(packet); };
    const auto x_of = [&](uint32_t packet) { return epilogue.with_residual(row.load(packet), epilogue.residual(packet)); };
    const Columns columns(shared, row.packets(), Operands::wants_largest(args) ? largest : nullptr);
    for (uint32_t column = platform::thread(); column < columns.count(); column += platform::threads()) {
      for (uint32_t packet = column; packet < row.packets(); packet += kNormColumns) {
        const Words<4> x = x_of(packet);
        epilogue.keep(packet, x);
        epilogue.add(columns, packet, x, weights);
      }
    }
    const auto again = [&](uint32_t packet) { return args.residual_out != nullptr ? epilogue.kept(packet) : x_of(packet); };
    const RowScale scale = epilogue.scale(columns, again, weights);
    if (number + platform::blocks() >= args.rows) platform::release_next();
    const bool kept = args.residual_out != nullptr;
    epilogue.norm_row([&](uint32_t packet) { return kept ? epilogue.kept(packet) : x_of(packet); }, weights, scale, largest);
    platform::sync_block();  // all threads have read the total and the largest values
  }
}

}  // namespace symmetra::kernels
