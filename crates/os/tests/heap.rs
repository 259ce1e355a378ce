//! The heap in use by this process. In a binary of its own, because other tests allocate from the
//! same heap.

use weft_os::process::heap_in_use;
use weft_os::test_support;

#[test]
fn heap_use_grows_and_shrinks_with_allocations() {
    let Some(before) = heap_in_use() else {
        return test_support::skip("the C library does not report what is in use of its heap");
    };
    let taken: Vec<Vec<u8>> = (0..1_000).map(|_| vec![1; 10_000]).collect();
    let with = heap_in_use().unwrap_or_default();
    drop(taken);
    let after = heap_in_use().unwrap_or_default();
    assert!(with.saturating_sub(before) >= 9_000_000, "{before} -> {with}");
    assert!(with.saturating_sub(after) >= 9_000_000, "{with} -> {after}");
}
