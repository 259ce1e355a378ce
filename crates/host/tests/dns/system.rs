//! Calls of `resolvectl`, against programs that behave like a faulty one.

use std::fs;
use std::path::{Path, PathBuf};

use weft_host::dns::{RegisterError, Resolved, Search};
use weft_os::test_support::write_program;

/// A program in `directory` that records its arguments and then runs `script`.
fn program(directory: &Path, script: &str) -> PathBuf {
    let path = directory.join("resolvectl");
    let calls = directory.join("calls");
    let script = format!("#!/bin/sh\necho \"$@\" >> '{}'\n{script}\n", calls.display());
    write_program(&path, &script);
    path
}

fn calls(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn register(program: &Path) -> Result<(), RegisterError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = "[fd00::1]:5354".parse().unwrap();
    let search = Search::new(["home", "work"]);
    runtime.block_on(Resolved::new(program, 7).register(server, &search, "npub1x.fips"))
}

#[test]
fn resolved_gets_all_settings_of_the_link() {
    let directory = tempfile::tempdir().unwrap();
    register(&program(directory.path(), "")).unwrap();
    assert_eq!(
        calls(directory.path()),
        [
            "domain 7 ~fips ~weft home.weft work.weft",
            "default-route 7 no",
            "dnssec 7 no",
            "dnsovertls 7 no",
            "llmnr 7 no",
            "mdns 7 no",
            "dns 7 [fd00::1]:5354",
            "query npub1x.fips",
        ]
    );
}

/// The probe is the last step; the settings made before it are removed.
#[test]
fn a_failure_is_told_and_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let script = "[ \"$1\" != query ] || { echo \"npub1x.fips: resolve call failed\" >&2; exit 1; }";
    let error = register(&program(directory.path(), script)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`resolvectl query npub1x.fips` said: npub1x.fips: resolve call failed"
    );
    assert_eq!(calls(directory.path()).last().unwrap(), "revert 7");
}

#[test]
fn one_that_is_not_there() {
    let error = register(Path::new("/nonexistent/resolvectl")).unwrap_err();
    assert!(matches!(error, RegisterError::NoProgram(_)), "{error}");
}
