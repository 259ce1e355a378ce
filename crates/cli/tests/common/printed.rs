//! What commands of a test printed.

use std::process::Output;

/// Returns standard output of a command that succeeded and wrote nothing to standard error.
pub(crate) fn done(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the one line of a command that failed with `code`.
pub(crate) fn failed(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("weft: "), "{stderr}");
    stderr.trim_end().to_owned()
}
