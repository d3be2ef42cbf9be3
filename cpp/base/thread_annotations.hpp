// Thread annotations: which lock guards a member, and which lock the caller of a function must hold, in a form that
// clang checks (-Wthread-safety, tools/check_threads.py). Other compilers ignore them.
// Used by agree/, engine/, execute/, progress/ and transport/; macros.
#pragma once

#ifdef __clang__
#define CIRANDA_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define CIRANDA_THREAD_ANNOTATION(...)
#endif

// Of a class: a lock, or an object that holds one for its lifetime.
#define CAPABILITY(name) CIRANDA_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY CIRANDA_THREAD_ANNOTATION(scoped_lockable)
// Of a member: only a thread that holds the lock reads or writes it.
#define GUARDED_BY(lock) CIRANDA_THREAD_ANNOTATION(guarded_by(lock))
// Of a function: its caller holds the lock; it takes the lock, perhaps (if it returns `is_taken`), or releases it.
#define REQUIRES(lock) CIRANDA_THREAD_ANNOTATION(requires_capability(lock))
#define ACQUIRE(...) CIRANDA_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(is_taken, lock) CIRANDA_THREAD_ANNOTATION(try_acquire_capability(is_taken, lock))
#define RELEASE(...) CIRANDA_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// Of a function: what it does is not checked, but its callers are.
#define NO_THREAD_SAFETY_ANALYSIS CIRANDA_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace ciranda {

// Stands for the progress lock (progress/progress_lock.hpp) in annotations, in any folder. One object stands for the
// locks of all worlds, since no function handles two worlds.
struct CAPABILITY("progress lock") ProgressCapability {};
inline constexpr ProgressCapability progress_lock{};

}  // namespace ciranda
