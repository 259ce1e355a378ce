//! What this process has taken from the C library's heap, where Rust and C code alike take theirs.

/// Bytes of the heap that are in use, the allocator's own included, over all threads. What threads keep to hand out again
/// counts as in use: some hundred KiB for each at the most. `None` where the C library does not tell (it is glibc that does).
#[must_use]
pub fn heap_in_use() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing and returns plain numbers; it takes the locks of the allocator itself.
        let info = unsafe { libc::mallinfo2() };
        Some(info.uordblks as u64 + info.hblkhd as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
