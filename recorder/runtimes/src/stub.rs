//! Functions that get what the program passes as words, and where it called them.
#![expect(unsafe_code, reason = "words that were passed are read where they are")]

/// The words that were passed to a function, and its return address.
#[derive(Clone, Copy)]
pub(crate) struct Words(*mut usize);

#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 8;

impl Words {
    /// # Safety
    /// - The pointer is that which a function made by [`stub`] passes.
    pub(crate) const unsafe fn new(words: *mut usize) -> Self {
        Self(words)
    }

    fn place(self, number: usize) -> *mut usize {
        // With x86-64, the return address is between those in registers and the others.
        let after = usize::from(cfg!(target_arch = "x86_64") && number >= IN_REGISTERS);
        self.0.wrapping_add(number + after)
    }

    /// Returns a word. Any, if the program has not passed as many.
    pub(crate) fn get(self, number: usize) -> usize {
        // SAFETY: a word of the stack, in the stub's frame or that of its caller.
        unsafe { self.place(number).read() }
    }

    /// Replaces a word, which was passed in a register.
    pub(crate) fn set(self, number: usize, word: usize) {
        debug_assert!(number < IN_REGISTERS, "others are the program's memory");
        // SAFETY: a word in the stub's frame.
        unsafe { self.place(number).write(word) };
    }

    /// Returns the address of the call.
    pub(crate) fn call_address(self) -> usize {
        let place = match cfg!(target_arch = "x86_64") {
            true => self.0.wrapping_add(IN_REGISTERS),
            false => self.0.wrapping_sub(1),
        };
        // SAFETY: the return address, in the stub's frame.
        unsafe { place.read() }.saturating_sub(1)
    }

    /// Calls a function with these words: six, or with `is_long` twelve.
    ///
    /// # Safety
    /// - At this address is a function to which the words can be passed.
    #[inline(always)]
    pub(crate) unsafe fn pass_on(self, function: usize, is_long: bool) -> usize {
        type Short = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;
        #[rustfmt::skip]
        type Long = unsafe extern "C-unwind" fn(
            usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
        ) -> usize;
        let word = |number: usize| self.get(number);
        if is_long {
            // SAFETY: by the requirement; words that it does not have are on the caller's stack, and not read.
            let function = unsafe { std::mem::transmute::<usize, Long>(function) };
            // SAFETY: by the requirement.
            return unsafe {
                function(
                    word(0),
                    word(1),
                    word(2),
                    word(3),
                    word(4),
                    word(5),
                    word(6),
                    word(7),
                    word(8),
                    word(9),
                    word(10),
                    word(11),
                )
            };
        }
        // SAFETY: by the requirement; it does not read words that it does not have.
        let function = unsafe { std::mem::transmute::<usize, Short>(function) };
        // SAFETY: by the requirement.
        unsafe { function(word(0), word(1), word(2), word(3), word(4), word(5)) }
    }
}

/// Defines a function `stub` that calls this one with a pointer for [`Words::new`], and returns what that returns.
#[cfg(target_arch = "x86_64")]
macro_rules! stub {
    ($inner:path) => {
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn stub() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 56",
                "call {inner}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// Defines a function `stub` that calls this one with a pointer for [`Words::new`], and returns what that returns.
#[cfg(target_arch = "aarch64")]
macro_rules! stub {
    ($inner:path) => {
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn stub() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x0, sp, #16",
                "bl {inner}",
                "ldp x29, x30, [sp], #80",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}
pub(crate) use stub;
