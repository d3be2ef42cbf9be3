// CommonSettings: the settings that must be equal on all ranks of a world. Ranks exchange them (bootstrap_messages.hpp)
// and compare. Called by join_world() and bootstrap_messages.hpp; plain values.
#pragma once

#include <cstdint>
#include <string>

namespace ciranda {

struct CommonSettings {
  std::uint64_t slot_bytes = 512 * 1024;  // a multiple of 4096
  std::uint64_t n_lanes = 1;
  // Connections for the data of two ranks that share no memory; 0: one for each interface.
  std::uint64_t n_sockets = 0;
  bool uses_relays = true;
  std::string wire;  // the level of the records on sockets (seal.hpp)
  std::string algorithm;
  std::string wire_dtype;
  std::string gpu_way;
  std::string gpu_reduce;
  std::int64_t one_shot_bytes = -1;
  std::int64_t segment_bytes = 0;
  bool autotune = true;  // see PeerInfo::pair
};

// Calls visit(name for messages, pointer to the member) for each setting.
template <typename Visit>
void for_each_common_setting(Visit visit) {
  visit("CIRANDA_SLOT_BYTES", &CommonSettings::slot_bytes);
  visit("CIRANDA_NUM_LANES, or num_lanes of init(),", &CommonSettings::n_lanes);
  visit("CIRANDA_SOCKETS, or the number of interfaces,", &CommonSettings::n_sockets);
  visit("CIRANDA_RELAYS", &CommonSettings::uses_relays);
  visit("CIRANDA_WIRE", &CommonSettings::wire);
  visit("CIRANDA_ALGORITHM", &CommonSettings::algorithm);
  visit("CIRANDA_WIRE_DTYPE", &CommonSettings::wire_dtype);
  visit("CIRANDA_GPU_WAY", &CommonSettings::gpu_way);
  visit("CIRANDA_GPU_REDUCE", &CommonSettings::gpu_reduce);
  visit("CIRANDA_ONE_SHOT_BYTES", &CommonSettings::one_shot_bytes);
  visit("CIRANDA_SEGMENT_BYTES", &CommonSettings::segment_bytes);
  visit("CIRANDA_AUTOTUNE", &CommonSettings::autotune);
}

}  // namespace ciranda
