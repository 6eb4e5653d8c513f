// Tokens and their experts on every rank, and the definitions of a dispatch and a combine.
#pragma once

#include <algorithm>
#include <optional>

#include "ranks.hpp"

namespace test {

using namespace symmetra;

using Lists = std::vector<std::vector<std::size_t>>;

constexpr std::size_t kWorld = 3, kExperts = 7, kTopK = 3, kHidden = 5, kMostTokens = 6;
// The tokens of every rank.

inline std::size_t tokens_of(std::size_t rank) { return std::vector<std::size_t>{4, 0, 6}[rank]; }

/// Some token has an expert twice, and some pairs have none.
inline std::int32_t id_of(std::size_t rank, std::size_t token, std::size_t k) {
  if (token == 3) return 5;
  return static_cast<std::int32_t>((rank * 5 + token * 3 + k * 4) % (kExperts + 1)) - 1;
}

inline float weight_of(std::size_t rank, std::size_t token, std::size_t k) {
  return 0.1f * static_cast<float>(1 + rank + 2 * token + 3 * k);
}

inline float row_of(std::size_t rank, std::size_t token, std::size_t h) { return static_cast<float>(100 * rank + 10 * token + h) / 7.0f; }

/// The result of expert `expert` for an element.
inline float result_of(std::size_t expert, float x) { return x * (static_cast<float>(expert) + 1.5f); }

// The model.

/// A pair of a token and one of its experts, where the expert is.
struct Pair {
  std::size_t source, token, k, rank, local, expert;

  float x(std::size_t h) const { return row_of(source, token, h); }
  float weight() const { return weight_of(source, token, k); }
  float result(std::size_t h) const { return result_of(expert, x(h)); }
};

/// All pairs by source, token and place among the token's ids.
inline std::vector<Pair> pairs_of(const Lists& lists) {
  std::vector<Pair> pairs;
  for (std::size_t source = 0; source < kWorld; ++source) {
    for (std::size_t token = 0; token < tokens_of(source); ++token) {
      for (std::size_t k = 0; k < kTopK; ++k) {
        if (id_of(source, token, k) < 0) continue;
        const auto expert = static_cast<std::size_t>(id_of(source, token, k));
        std::vector<Pair> copies;
        std::optional<Pair> own;
        for (std::size_t rank = 0; rank < kWorld; ++rank) {
          const auto found = std::find(lists[rank].begin(), lists[rank].end(), expert);
          if (found == lists[rank].end()) continue;
          copies.push_back({source, token, k, rank, static_cast<std::size_t>(found - lists[rank].begin()), expert});
          if (rank == source) own = copies.back();
        }
        pairs.push_back(own ? *own : copies[(source + token) % copies.size()]);
      }
    }
  }
  return pairs;
}

/// Whether a token has one row on a rank, the sum of whose experts is the caller's.
inline bool is_by_token(Layout layout) { return layout == Layout::kByRank || layout == Layout::kBySource; }

/// The data that a rank receives.
struct Arrived {
  std::vector<std::vector<Pair>> rows;  ///< the pairs of each row; none where a row is free
  std::vector<std::uint32_t> counts, offsets, index;
};

inline Arrived arrived_at(std::size_t rank, const Lists& lists, const ExpertConfig& config) {
  std::vector<Pair> here;
  for (const Pair& pair : pairs_of(lists)) {
    if (pair.rank == rank) here.push_back(pair);
  }
  Arrived arrived;
  std::vector<std::size_t> row_of_pair;
  if (config.layout == Layout::kByRank) {
    for (const Pair& pair : here) {
      const bool next = arrived.rows.empty() || arrived.rows.back()[0].source != pair.source || arrived.rows.back()[0].token != pair.token;
      if (next) arrived.rows.emplace_back();
      arrived.rows.back().push_back(pair);
      row_of_pair.push_back(arrived.rows.size() - 1);
    }
  }
  if (config.layout == Layout::kBySource) {
    arrived.rows.resize(kWorld * config.max_tokens);
    for (const Pair& pair : here) arrived.rows[pair.source * config.max_tokens + pair.token].push_back(pair);
    return arrived;
  }
  arrived.offsets.push_back(0);
  for (std::size_t local = 0; local < lists[rank].size(); ++local) {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (here[i].local != local) continue;
      ++count;
      if (config.layout == Layout::kByRank) {
        arrived.index.push_back(static_cast<std::uint32_t>(row_of_pair[i]));
      } else {
        arrived.rows.push_back({here[i]});
      }
    }
    std::uint32_t end = arrived.offsets.back() + count;
    if (config.layout == Layout::kByExpert) {
      const auto align = static_cast<std::uint32_t>(config.align);
      end = (end + align - 1) / align * align;
    }
    if (config.layout == Layout::kPadded) end = static_cast<std::uint32_t>((local + 1) * config.padded_rows);
    if (config.layout != Layout::kByRank) arrived.rows.resize(end);
    arrived.counts.push_back(count);
    arrived.offsets.push_back(end);
  }
  return arrived;
}

/// The sum of a token: of weighted results, or of results as they are.
inline float sum_of(const std::vector<Pair>& pairs, std::size_t source, std::size_t token, std::size_t h, bool exact, bool weighted) {
  std::vector<float> parts(exact ? 1 : kWorld, 0.0f);
  for (const Pair& pair : pairs) {
    if (pair.source != source || pair.token != token) continue;
    const float product = weighted ? pair.weight() * pair.result(h) : pair.result(h);
    parts[exact ? 0 : pair.rank] += product;
  }
  float sum = 0.0f;
  for (const float part : parts) sum += part;
  return sum;
}

/// Rows of `of`, each of `width` values, where the model has a row; other rows are untouched.
template <class T, class Value>
inline void check_rows(const std::vector<T>& found, const Arrived& arrived, std::size_t width, T untouched, const Value& of) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t row = i / width;
    const bool has = row < arrived.rows.size() && !arrived.rows[row].empty();
    CHECK_EQ(found[i], has ? of(arrived.rows[row], i % width) : untouched);
  }
}

/// The pair of a row at place `k` of its token; of rows that are pairs, the pair.
inline const Pair* pair_at(const std::vector<Pair>& row, std::size_t k, bool by_token) {
  if (!by_token) return &row[0];
  const auto found = std::find_if(row.begin(), row.end(), [&](const Pair& pair) { return pair.k == k; });
  return found == row.end() ? nullptr : &*found;
}

}  // namespace test
