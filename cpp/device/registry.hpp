// Objects of which a process has one, shared by all its ranks.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace symmetra::device {

/// One use of the process's only Thing for a key: the first use creates it, the last destroys it.
template <typename Key, typename Thing>
class Use {
 public:
  /// `args` create the Thing if it does not exist.
  template <typename... Args>
  explicit Use(const Key& key, const Args&... args) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    entry_ = all.entries.try_emplace(key, args...).first;
    entry_->second.users += 1;
  }
  ~Use() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    entry_->second.users -= 1;
    if (entry_->second.users == 0) all.entries.erase(entry_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  const Thing& thing() const noexcept { return entry_->second.thing; }

 private:
  struct Entry {
    template <typename... Args>
    explicit Entry(const Args&... args) : thing(args...) {}
    Thing thing;
    size_t users = 0;
  };
  struct Registry {
    std::mutex mutex;
    std::map<Key, Entry> entries;
  };

  // Never destroyed, because a use with static storage may end later.
  static Registry& registry() {
    static Registry* const all = new Registry;
    return *all;
  }

  typename std::map<Key, Entry>::iterator entry_;
};

}  // namespace symmetra::device
