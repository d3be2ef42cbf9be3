#include "mpi_sums.hpp"

#ifdef OMPI_MPI_H
#include <mpi-ext.h>
#endif

#include <array>
#include <string_view>

#include "numbers.hpp"
#include "sums.hpp"

namespace peers {
namespace {

#ifdef MPICH_VERSION
bool is_intels() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return std::string_view(text).find("Intel") != std::string_view::npos;
}
#endif

// The MPI's own type, an extension of the standard; MPI_DATATYPE_NULL if there is none.
MPI_Datatype own_type([[maybe_unused]] DataType dtype) {
#ifdef MPIX_C_FLOAT16
  if (dtype == DataType::kFloat16) return MPIX_C_FLOAT16;
#endif
#ifdef MPIX_BFLOAT16
  // Intel MPI has MPICH's binary interface, except for this type (MPIX_C_BF16 in its mpi.h).
  if (dtype == DataType::kBFloat16) return is_intels() ? static_cast<MPI_Datatype>(0x4c000247) : MPIX_BFLOAT16;
#endif
  return MPI_DATATYPE_NULL;
}

template <typename T>
bool is_right(MPI_Datatype datatype) {
  std::array<T, 5> sum{};
  std::array<T, 5> added{};
  sum.fill(number<T>(1.5F));
  added.fill(number<T>(2.25F));
  return MPI_Reduce_local(added.data(), sum.data(), static_cast<int>(sum.size()), datatype, MPI_SUM) == MPI_SUCCESS &&
         sum.back() == number<T>(3.75F);
}

bool has_sum(DataType dtype, MPI_Datatype datatype) {
  if (datatype == MPI_DATATYPE_NULL) return false;
  MPI_Errhandler usual{};
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &usual);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const bool has = with_type(dtype, [datatype]<typename T>() { return is_right<T>(datatype); });
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, usual);
  return has;
}

template <DataType dtype>
void add_up(void* added, void* sum, int* count, MPI_Datatype*) {
  add(dtype, sum, added, sum, static_cast<std::size_t>(*count));
}

// Creates the operator once; MPI_Finalize frees it.
template <DataType dtype>
MPI_Op users_op() {
  static const MPI_Op made = [] {
    MPI_Op op{};
    MPI_Op_create(&add_up<dtype>, 1, &op);
    return op;
  }();
  return made;
}

}  // namespace

std::vector<MpiSum> sums_of(DataType dtype) {
  if (dtype == DataType::kFloat32) return {{MPI_FLOAT, MPI_SUM, "its own"}};
  std::vector<MpiSum> found;
  if (const MPI_Datatype own = own_type(dtype); has_sum(dtype, own)) found.push_back({own, MPI_SUM, "its own"});
  const MPI_Op op = dtype == DataType::kFloat16 ? users_op<DataType::kFloat16>() : users_op<DataType::kBFloat16>();
  found.push_back({MPI_UINT16_T, op, "a user's"});
  return found;
}

}  // namespace peers
