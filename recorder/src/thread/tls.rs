//! The recorder's data for the calling thread, at a fixed distance from the thread's own pointer
//! (the *initial-exec* model), also in shared libraries: there, a `thread_local!` calls into the
//! dynamic loader, which may allocate at a thread's first use, and a signal handler must not.
//! Programs that are linked with the recorder pay nothing for this: the linker turns the distance
//! into a constant.
//!
//! Libraries with such a block can still be loaded at run time: the loader keeps room for small
//! ones (glibc 512 bytes beyond its own need), and this one is 64 bytes.
#![expect(
    unsafe_code,
    reason = "stable Rust has no thread-local storage of this model, and any other calls the loader in a signal \
              handler; tests/capi/calls.c shows that this one does not"
)]

use super::Thread;

/// The calling thread's [`Thread`], zeros at first.
#[derive(Debug)]
pub(crate) struct ThisThread;

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(miri)
))]
mod block {
    use std::arch::{asm, global_asm};

    use crate::thread::Thread;

    const LENGTH: usize = 64;
    const _: () = assert!(size_of::<Thread>() <= LENGTH && align_of::<Thread>() <= 16);

    /// The block's name, one for each version of this crate in a program.
    macro_rules! block {
        ($before:literal, $behind:literal) => {
            concat!(
                $before,
                "annals_thread_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH"),
                $behind
            )
        };
    }

    // Weak: a program may link a version of this crate twice, in itself and in libannals.a.
    global_asm!(
        ".pushsection .tbss.annals,\"awT\",@nobits",
        ".balign 16",
        block!(".weak ", ""),
        block!(".hidden ", ""),
        block!(".type ", ", @object"),
        block!(".size ", ", {length}"),
        block!("", ":"),
        ".zero {length}",
        ".popsection",
        length = const LENGTH,
    );

    #[inline(always)]
    pub(super) fn address() -> *const Thread {
        let address: *const Thread;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads the block's distance from the thread pointer, and that pointer (System V
        // ABI, "ELF Handling For Thread-Local Storage"); both stay the same while the thread lives.
        unsafe {
            asm!(
                block!("mov {address}, qword ptr [rip + ", "@GOTTPOFF]"),
                "add {address}, qword ptr fs:[0]",
                address = out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads the block's distance from the thread pointer, and that pointer (System V
        // ABI, "ELF Handling For Thread-Local Storage"); both stay the same while the thread lives.
        unsafe {
            asm!(
                block!("adrp {address}, :gottprel:", ""),
                block!("ldr {address}, [{address}, :gottprel_lo12:", "]"),
                "mrs {thread}, tpidr_el0",
                "add {address}, {address}, {thread}",
                address = out(reg) address,
                thread = out(reg) _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }
}

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(miri)
)))]
mod block {
    use crate::thread::Thread;

    thread_local! {
        static BLOCK: Thread = const { Thread::new() };
    }

    pub(super) fn address() -> *const Thread {
        BLOCK.with(std::ptr::from_ref)
    }
}

impl ThisThread {
    #[inline(always)]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Thread) -> T) -> T {
        // SAFETY: the calling thread's block, which no other thread uses, as shared references to
        // cells and atomics; it has no destructor and is valid until the thread ends. Zeros are a
        // `Thread`.
        work(unsafe { &*block::address() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::THREAD;

    #[test]
    fn every_thread_has_a_block_of_its_own() {
        let here = || THREAD.with(|thread| std::ptr::from_ref(thread).addr());
        let mine = here();
        assert_eq!(here(), mine);
        let theirs = std::thread::scope(|scope| scope.spawn(here).join().unwrap());
        assert_ne!(theirs, mine);
    }
}
