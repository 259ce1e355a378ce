//! The use of the C library's heap, from which Rust and C code alike allocate.

/// Bytes of the heap that are in use, including the allocator's own, over all threads. Memory that
/// a thread caches for reuse counts as in use: some hundred KiB per thread at most. `None` if the C
/// library does not report it (glibc does).
#[must_use]
pub fn heap_in_use() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes no argument and returns plain numbers; it takes the locks of the allocator
        // itself.
        let info = unsafe { libc::mallinfo2() };
        Some(info.uordblks as u64 + info.hblkhd as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
