// Norms of summed rows.
#include "symmetra/norm.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/src/capi/mod.rs.h"
#include "symmetra/src/capi/norm.rs.h"

namespace symmetra {

core::QuantisedForm core::form_of(const symmetra::QuantisedForm& form) {
  return {static_cast<std::uint32_t>(form.scaling), static_cast<std::uint32_t>(form.to), static_cast<std::uint32_t>(form.layout),
          form.elems};
}

using core::operand_of;

namespace {

core::AskedRows asked_rows(const QuantisedRows& rows) {
  core::AskedRows asked{};
  asked.form = core::form_of({rows.scaling, rows.to, rows.elems, rows.layout});
  asked.values = operand_of(rows.values);
  if ((asked.has_scales = rows.scales.has_value())) asked.scales = operand_of(*rows.scales);
  if ((asked.has_known_scale = rows.known_scale.has_value())) asked.known_scale = operand_of(*rows.known_scale);
  return asked;
}

}  // namespace

void Collectives::norm(const char* operation, const RowNorm& rows, const Queue& queue) const {
  core::AskedNorm asked{};
  asked.operation = operation;
  asked.input = operand_of(rows.input);
  asked.weight = operand_of(rows.weight);
  if ((asked.has_bias = rows.bias.has_value())) asked.bias = operand_of(*rows.bias);
  if ((asked.has_residual = rows.residual.has_value())) asked.residual = operand_of(*rows.residual);
  if ((asked.has_residual_out = rows.residual_out.has_value())) asked.residual_out = operand_of(*rows.residual_out);
  if ((asked.has_output = rows.output.has_value())) asked.output = operand_of(*rows.output);
  if ((asked.has_quantised = rows.quantised.has_value())) asked.quantised = asked_rows(*rows.quantised);
  asked.is_layer = std::holds_alternative<LayerNorm>(rows.norm);
  std::visit(
      [&](const auto& norm) {
        asked.epsilon = norm.epsilon;
        asked.weight_offset = norm.weight_offset;
      },
      rows.norm);
  asked.width = rows.width;
  asked.algorithm = static_cast<std::uint32_t>(rows.algorithm);
  core::call([&] { core::run_norm(core::live(group_), asked, core::queue_of(queue)); });
}

}  // namespace symmetra
