// MPI's messages between two ranks. Each is a transfer of the engine between these ranks.
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "bindings/mpi/calls.hpp"
#include "bindings/mpi/errors.hpp"
#include "bindings/mpi/handles.hpp"

namespace ciranda::mpi {
namespace {

// A pending message; MPI's handle is its address.
class Message {
 public:
  // The direction: this rank sends the buffer to the peer, or receives it.
  enum class Way { kSend, kReceive };

  Message(Way way, void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm)
      : source_(peer), tag_(tag) {
    if (peer == kProcNull) return;
    const auto communicator = communicator_of(comm);
    check(*communicator, peer, tag);
    const native::Context world;
    communicator->check(world);
    const auto world_rank = [&](int rank) { return communicator->ranks()[static_cast<std::size_t>(rank)]; };
    const int sender = way == Way::kSend ? communicator->rank() : peer;
    const int receiver = way == Way::kSend ? peer : communicator->rank();
    const Tensor tensor(buffer, buffer, dtype_of(datatype), counted(count));
    const std::string name = communicator->name_of(
        {CIRANDA_TRANSFER, tag, tensor.get().dtype, tensor.count(), {world_rank(sender), world_rank(receiver)}});
    ciranda_request request = request_of(CIRANDA_TRANSFER);
    request.root = world_rank(sender);
    request.process_set = ciranda_pair(world.get(), world_rank(peer));
    request.name = name.c_str();
    request.tensors = &tensor.get();
    request.tensors_count = 1;
    if (ciranda_submit(world.get(), &request, &operation_) != CIRANDA_OK) {
      throw Failure{"the engine could not take in the request"};
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() { ciranda_operation_release(operation_); }

  bool is_done() const { return operation_ == nullptr || ciranda_poll(operation_) != 0; }

  // Blocks until it is done. Throws Failure.
  void wait(Status* status) const {
    if (operation_ != nullptr && ciranda_wait(operation_) != CIRANDA_OK) {
      throw Failure{ciranda_operation_message(operation_)};
    }
    if (status != nullptr) *status = {{}, source_, tag_, 0};
  }

 private:
  static void check(const Communicator& communicator, int peer, int tag) {
    if (peer == kAnySource || tag == kAnyTag)
      throw Failure{"MPI_ANY_SOURCE and MPI_ANY_TAG are not offered by ciranda"};
    if (peer == communicator.rank()) throw Failure{"a message to oneself is not offered by ciranda"};
    if (peer < 0 || peer >= communicator.size()) throw Failure{"there is no rank " + std::to_string(peer)};
  }

  int source_;
  int tag_;
  ciranda_operation* operation_ = nullptr;  // null: the peer is MPI_PROC_NULL
};

using Way = Message::Way;

// Removes the const of a send buffer, which the engine only reads.
void* sent(const void* buffer) { return const_cast<void*>(buffer); }

RequestHandle begin(Way way, void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm) {
  auto message = std::make_unique<Message>(way, buffer, count, datatype, peer, tag, comm);
  return reinterpret_cast<RequestHandle>(message.release());
}

// Waits, and clears the handle, also on failure.
void end(RequestHandle* request, Status* status) {
  const std::unique_ptr<Message> message(reinterpret_cast<Message*>(std::exchange(*request, kRequestNull)));
  if (message) message->wait(status);
}

// Runs several waits, and continues if one throws: the buffers of pending messages are still being written. end()
// rethrows the first exception.
class AllWaits {
 public:
  template <typename Wait>
  void add(const Wait& wait) {
    try {
      wait();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void end() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace
}  // namespace ciranda::mpi

extern "C" {

using namespace ciranda::mpi;  // NOLINT(google-build-using-namespace)

CIRANDA_API int MPIABI_Isend(const void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm,
                             RequestHandle* request) {
  *request = kRequestNull;
  return guarded("MPI_Isend", [&] { *request = begin(Way::kSend, sent(buffer), count, datatype, peer, tag, comm); });
}

CIRANDA_API int MPIABI_Irecv(void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm,
                             RequestHandle* request) {
  *request = kRequestNull;
  return guarded("MPI_Irecv", [&] { *request = begin(Way::kReceive, buffer, count, datatype, peer, tag, comm); });
}

CIRANDA_API int MPIABI_Send(const void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm) {
  return guarded("MPI_Send",
                 [&] { Message(Way::kSend, sent(buffer), count, datatype, peer, tag, comm).wait(nullptr); });
}

CIRANDA_API int MPIABI_Recv(void* buffer, int count, Datatype datatype, int peer, int tag, Comm comm, Status* status) {
  return guarded("MPI_Recv", [&] { Message(Way::kReceive, buffer, count, datatype, peer, tag, comm).wait(status); });
}

CIRANDA_API int MPIABI_Sendrecv(const void* send, int send_count, Datatype send_type, int to, int send_tag,
                                void* receive, int receive_count, Datatype receive_type, int from, int receive_tag,
                                Comm comm, Status* status) {
  return guarded("MPI_Sendrecv", [&] {
    const Message incoming(Way::kReceive, receive, receive_count, receive_type, from, receive_tag, comm);
    AllWaits waits;
    waits.add([&] { Message(Way::kSend, sent(send), send_count, send_type, to, send_tag, comm).wait(nullptr); });
    waits.add([&] { incoming.wait(status); });
    waits.end();
  });
}

CIRANDA_API int MPIABI_Wait(RequestHandle* request, Status* status) {
  return guarded("MPI_Wait", [&] { end(request, status); });
}

CIRANDA_API int MPIABI_Waitall(int count, RequestHandle* requests, Status* statuses) {
  return guarded("MPI_Waitall", [&] {
    AllWaits waits;
    for (int i = 0; i < count; ++i) waits.add([&] { end(&requests[i], statuses == nullptr ? nullptr : &statuses[i]); });
    waits.end();
  });
}

CIRANDA_API int MPIABI_Test(RequestHandle* request, int* is_done, Status* status) {
  *is_done = 0;
  return guarded("MPI_Test", [&] {
    const auto* const message = reinterpret_cast<const Message*>(*request);
    if (message != nullptr && !message->is_done()) return;
    *is_done = 1;
    end(request, status);
  });
}
}
