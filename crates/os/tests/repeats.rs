//! Failed network tests are started again, and one without an end is ended: this program runs such
//! tests of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use weft_os::assert_strict;
use weft_os::test_support::in_namespaces;

/// The file to which each try of a test adds a byte.
const TRIES: &str = "WEFT_TEST_TRIES";

/// Counts a try and returns its number.
fn count() -> usize {
    let path = std::env::var_os(TRIES).unwrap();
    let mut tries = fs::read(&path).unwrap();
    tries.push(b'.');
    fs::write(&path, &tries).unwrap();
    tries.len()
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn fails_once() {
    in_namespaces(|| assert_ne!(count(), 1, "by chance"));
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn fails_now_and_then() {
    in_namespaces(|| assert_eq!(count() % 2, 0, "by a race"));
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn fails_and_then_skips() {
    in_namespaces(|| match count() {
        1 => panic!("by a defect"),
        _ => weft_os::test_support::skip("it does not run here"),
    });
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn never_passes() {
    in_namespaces(|| assert_eq!(count(), 0, "by a defect"));
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn is_strict() {
    in_namespaces(|| assert_strict!(count() > 1, "a secret is shown"));
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn is_strict_in_a_thread() {
    in_namespaces(|| {
        let thread = std::thread::spawn(|| assert_strict!(count() > 1, "a secret is shown"));
        thread.join().unwrap();
    });
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn becomes_strict_while_it_unwinds() {
    struct Found;
    impl Drop for Found {
        fn drop(&mut self) {
            weft_os::test_support::note_strict(format_args!("a daemon panicked"));
        }
    }
    in_namespaces(|| {
        let _found = Found;
        assert!(count() > 1, "no ping");
    });
}

#[test]
#[ignore = "fails on purpose; another test runs it"]
fn has_no_end() {
    in_namespaces(|| {
        count();
        loop {
            std::thread::park();
        }
    });
}

/// Runs one of the tests above: whether it passed, the number of tries, and what it printed.
fn run(name: &str, tries: &Path, limit_s: u32) -> (bool, usize, String) {
    fs::write(tries, "").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored"]).env(TRIES, tries);
    // A test that was started again leaves repeats to the process that started it.
    command
        .env_remove("WEFT_TEST_IN_USER_NAMESPACE")
        .env_remove("WEFT_TEST_AGAIN");
    command.env("WEFT_TEST_LIMIT", limit_s.to_string());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.success(), fs::read(tries).unwrap().len(), said)
}

#[test]
fn a_failed_test_passes_if_two_repeats_do_unless_strict() {
    in_namespaces(|| {
        let folder = tempfile::tempdir().unwrap();
        let tries = folder.path().join("tries");
        let (passed, count, said) = run("fails_once", &tries, 60);
        assert_eq!((passed, count), (true, 3), "{said}");
        // The values follow in the next lines.
        let flaky = "FLAKY: fails_once: assertion `left != right` failed: by chance\n";
        assert!(said.contains(flaky), "{said}");

        for (name, times) in [
            ("fails_now_and_then", 3),
            ("fails_and_then_skips", 2),
            ("never_passes", 2),
        ] {
            let (passed, count, said) = run(name, &tries, 60);
            assert_eq!((passed, count), (false, times), "{said}");
            assert!(!said.contains("FLAKY"), "{said}");
            assert!(said.contains(&format!("{name} failed again:")), "{said}");
            // What the repeats print is not counted as results of tests.
            let results = said.lines().filter(|line| line.starts_with("test result: "));
            assert_eq!(results.count(), 1, "{said}");
        }

        for (name, reason) in [
            ("is_strict", "a secret is shown"),
            ("is_strict_in_a_thread", "a secret is shown"),
            ("becomes_strict_while_it_unwinds", "a daemon panicked"),
        ] {
            let (passed, count, said) = run(name, &tries, 60);
            assert_eq!((passed, count), (false, 1), "{said}");
            assert!(said.contains(&format!("STRICT: {reason}")), "{said}");
        }
    });
}

#[test]
fn a_test_without_an_end_is_named_and_ended() {
    in_namespaces(|| {
        let folder = tempfile::tempdir().unwrap();
        let (passed, count, said) = run("has_no_end", &folder.path().join("tries"), 1);
        assert_eq!((passed, count), (false, 1), "{said}");
        assert!(said.contains("TIMEOUT: has_no_end: no end within 1 s\n"), "{said}");
    });
}
