//! Repeats of failed network tests.
//!
//! Such a test runs real programs on a real clock, so a machine that stands still for a moment can
//! fail it. A failed one is started again twice, alone and in a process of its own. If it passes both
//! times, it passes, and a line `FLAKY: name: reason` on standard error says so past the capture of
//! the test runner; `.ci/flaky` counts these lines. A failure by
//! [`assert_strict!`](crate::assert_strict) is final: one event disproves such a promise, whatever a
//! second run shows.

use std::any::Any;
use std::fmt::Arguments;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{kept_directories, limit, report, stalls, test_name};

/// The first word of a failure that is not repeated.
const STRICT: &str = "STRICT";
/// Failures of this process that are final. The message of one in a thread of a test does not reach
/// the test, whose own panic is about the thread.
static FINAL: AtomicUsize = AtomicUsize::new(0);
/// Set in the environment of a repeat: the test's name.
const AGAIN: &str = "WEFT_TEST_AGAIN";
/// How often a failed test is started again, and has to pass. A defect that shows in half of its runs
/// passes five times of eight; seven, if one pass were enough.
const REPEATS: usize = 2;
/// Failed tests of one program that are started again. With more of them something is broken, and
/// repeats would only delay the news.
const MOST: usize = 3;
/// Bytes of the output of a failed repeat that are shown, from its end.
const SHOWN: usize = 8192;

/// Asserts what a single event disproves: a secret that appears, a packet that leaks, a removed
/// member that is heard, content or order that changed. A test that fails so is not repeated.
#[macro_export]
macro_rules! assert_strict {
    ($holds:expr, $($reason:tt)+) => {
        if !$holds {
            $crate::test_support::fail_strictly(format_args!($($reason)+));
        }
    };
}

/// Panics for [`assert_strict!`](crate::assert_strict).
///
/// # Panics
/// Always.
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
pub fn fail_strictly(reason: Arguments<'_>) -> ! {
    FINAL.fetch_add(1, Ordering::Relaxed);
    panic!("{STRICT}: {reason}")
}

/// Makes the failure of the calling test final, which has failed for another reason: for what is found
/// while it unwinds, such as the panic of a daemon.
pub fn note_strict(reason: Arguments<'_>) {
    FINAL.fetch_add(1, Ordering::Relaxed);
    // A repeat is a process of its own: the process that started it finds this line in its output.
    eprintln!("{STRICT}: {reason}");
}

/// True in the process of a repeat, and in those that it starts.
pub(super) fn is_repeat() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// The name of the test that this process repeats.
pub(super) fn repeated_name() -> Option<String> {
    std::env::var(AGAIN).ok()
}

/// Runs the body of a test. If it fails, `quiet` is called, whose result is held while the test
/// runs again.
///
/// `Test` is the type of the test's own closure, which names the test.
pub(super) fn with_repeats<Test, Quiet>(body: impl FnOnce(), quiet: impl FnOnce() -> Quiet) {
    static REPEATED: AtomicUsize = AtomicUsize::new(0);

    let (start, finals) = (Instant::now(), FINAL.load(Ordering::Relaxed));
    let Err(panic) = catch_unwind(AssertUnwindSafe(body)) else {
        return;
    };
    let stall = stalls::since(start);
    if let Some(stall) = &stall {
        eprintln!("{stall}");
    }
    let text = text(&*panic).to_owned();
    // A final failure of another test meanwhile takes the repeats of this one; the run fails anyway.
    let strict = is_final(&text) || FINAL.load(Ordering::Relaxed) > finals;
    if is_repeat() || strict || REPEATED.fetch_add(1, Ordering::Relaxed) >= MOST {
        resume_unwind(panic);
    }
    let name = test_name(std::any::type_name::<Test>());
    report(&format!("{name} failed, and is repeated:\n{}", indented(end_of(&text))));
    for directory in kept_directories(name) {
        report(&format!("    logs: {}\n", directory.display()));
    }
    let _quiet = quiet();
    for _ in 0..REPEATS {
        let shown = match run_again(name) {
            Ok(output) if has_passed(&output) => continue,
            Ok(output) => both(&output),
            Err(error) => error.to_string(),
        };
        report(&format!("{name} failed again:\n{}", indented(end_of(&shown))));
        resume_unwind(panic);
    }
    let stall = stall.map(|stall| format!(" ({stall})")).unwrap_or_default();
    report(&format!("FLAKY: {name}: {}{stall}\n", reason(&text)));
}

fn run_again(name: &str) -> io::Result<Output> {
    // Its own time limit ends it first.
    let limit_s = limit::of_tests().as_secs() + 10;
    Command::new("timeout")
        .args(["--kill-after=10", &limit_s.to_string()])
        .arg(std::env::current_exe()?)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(AGAIN, name)
        .output()
}

/// The count guards against a name that matches nothing. A repeat that only skips shows nothing.
fn has_passed(output: &Output) -> bool {
    let contains = |bytes, text| String::from_utf8_lossy(bytes).contains(text);
    output.status.success()
        && contains(&output.stdout, "test result: ok. 1 passed")
        && !contains(&output.stderr, "SKIPPED: ")
}

fn is_final(text: &str) -> bool {
    text.contains(&format!("{STRICT}: "))
}

/// The message of a panic.
fn text(panic: &(dyn Any + Send)) -> &str {
    let string = panic.downcast_ref::<String>().map(String::as_str);
    string.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("")
}

/// The first line of a panic's message. The message of a test in a user namespace has the output of
/// another process, in which that line follows the place.
pub(super) fn reason(text: &str) -> &str {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at "));
    lines.nth(1).or_else(|| text.lines().next()).unwrap_or("").trim_start()
}

fn both(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Its lines do not look like those of the test runner, which are counted.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn end_of(text: &str) -> &str {
    let start = text.len().saturating_sub(SHOWN);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at));
    text.get(start.unwrap_or_default()..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_line_of_the_panic() {
        assert_eq!(reason("no ping in 5s\nmore"), "no ping in 5s");
        let nested = "x in a user namespace:\nthread 'x' panicked at a.rs:1:2:\nno ping\nnote: run with";
        assert_eq!(reason(nested), "no ping");
        assert_eq!(reason(""), "");
    }

    #[test]
    fn a_strict_failure_is_final() {
        let failed = catch_unwind(|| crate::assert_strict!(1 == 2, "a secret in {}", "the log")).unwrap_err();
        assert_eq!(text(&*failed), "STRICT: a secret in the log");
        assert!(is_final(text(&*failed)));
        assert!(is_final("in a user namespace:\nSTRICT: a secret"));
        assert!(!is_final("the STRICT mode"));
    }

    #[test]
    fn a_long_output_is_shown_from_its_end() {
        assert_eq!(end_of("short"), "short");
        let long = "ä".repeat(SHOWN);
        assert_eq!(end_of(&long).len(), SHOWN);
        assert!(end_of(&format!("{long}!")).len() < SHOWN);
    }
}
