//! Support for tests of this and other crates that need namespaces.

mod limit;
mod repeat;
mod stalls;
mod watch;

pub use repeat::{fail_strictly, note_strict};

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

use crate::netns::{self, Access, IdMaps};

/// Set in the environment of a test that was restarted in a user namespace: the test's name.
const INSIDE: &str = "WEFT_TEST_IN_USER_NAMESPACE";
/// The time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);
/// The device file of TUN interfaces.
const TUN: &str = "/dev/net/tun";
/// The variable that names a directory for [`keep_after_failure`].
const FAILURES: &str = "WEFT_TEST_FAILURES";

/// The directories that [`keep_after_failure`] has kept, each with the name of its test.
static KEPT: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

/// Whether namespaces can be created. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_namespaces() -> bool {
    access().is_some()
}

/// Whether nft(8) can be run. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_nft() -> bool {
    require("nft")
}

/// Whether tayga(8) can be run. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_tayga() -> bool {
    require("tayga")
}

/// Whether turnserver(1) of coturn can be run. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_turnserver() -> bool {
    require("turnserver")
}

/// Whether miniupnpd(8) can be run. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_miniupnpd() -> bool {
    require("miniupnpd")
}

/// Whether openssl(1) can be run. If not, it reports that as [`skip`] does.
#[must_use]
pub fn require_openssl() -> bool {
    require("openssl")
}

fn require(program: &str) -> bool {
    let found = Command::new(program).arg("--help").output().is_ok();
    if !found {
        skip(format!("{program} is not installed"));
    }
    found
}

/// Runs the body of a `#[test]` function in a process that can create network namespaces: for root
/// in this one; else in a new process of the same test in a user namespace, because a test runner
/// has threads and cannot move itself. If neither works the test is skipped as in
/// [`require_namespaces`]. A failed test is started again twice, and has to pass both times; a failure
/// by [`assert_strict!`](crate::assert_strict) is final. A test without an end ends the process after ten
/// minutes, or `WEFT_TEST_LIMIT` seconds.
///
/// `body` must be a closure written in the test function: its type names the test.
pub fn in_namespaces<F: FnOnce()>(body: F) {
    in_namespaces_alone_again(body, || ());
}

/// Like [`in_namespaces`]. `quiet` is called before a failed test is started again, and what it
/// returns is held meanwhile: a lock that keeps other tests away, for example.
pub fn in_namespaces_alone_again<F: FnOnce(), Quiet>(body: F, quiet: impl FnOnce() -> Quiet) {
    if is_inside() {
        // The process that started this one repeats.
        enter(body);
    } else {
        repeat::with_repeats::<F, Quiet>(|| enter(body), quiet);
    }
}

fn enter<F: FnOnce()>(body: F) {
    watch::start();
    let _running = limit::begin(test_name(std::any::type_name::<F>()));
    match access() {
        None => {}
        Some(Access::Privileged) => body(),
        Some(Access::UserNamespace) => {
            assert!(!is_inside(), "no rights in the user namespace");
            run_again(test_name(std::any::type_name::<F>()));
        }
    }
}

/// True in a process that [`in_namespaces`] started for a test, to enter a user namespace or to
/// repeat it.
#[must_use]
pub fn is_started_again() -> bool {
    is_inside() || repeat::is_repeat()
}

/// Whether this machine stood still at any time after `start`: what was measured meanwhile says nothing
/// about the program under test.
#[must_use]
pub fn stood_still_since(start: Instant) -> bool {
    stalls::since(start).is_some()
}

/// Writes a program that tests run, such as a script. Another process writes it: a process that another
/// test forks meanwhile inherits files that this one has open, and the system runs no program that is
/// open for writing.
///
/// # Panics
/// If it cannot be written.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
pub fn write_program(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path);
    let mut writer = command.stdin(Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let status = writer.wait().unwrap();
    assert!(status.success(), "{}: {status}", path.display());
}

/// Waits until the condition holds, which must be within `limit`. The last look begins after that, so
/// that a machine that stands still between two looks fails no test.
///
/// # Panics
/// If it does not hold in time, with `what` was waited for.
#[track_caller]
pub fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    loop {
        let late = Instant::now() >= end;
        if done() {
            return;
        }
        assert!(!late, "not within {limit:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Repeats a call that was interrupted: a read with a time limit is, when the process is stopped and
/// goes on (signal(7)).
///
/// # Errors
/// The other errors of the call.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// True in the process of a test that entered a user namespace.
fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Keeps a directory of a test that failed, and names it among the test's output. If
/// `WEFT_TEST_FAILURES` is set to a directory, it moves there under the test's name, if that is
/// possible. Returns its path.
pub fn keep_after_failure(directory: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let moved = std::env::var_os(FAILURES).and_then(|failures| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}", running_test().replace("::", "-"), std::process::id());
        let to = Path::new(&failures).join(name);
        // It stays where it is if that is another file system.
        std::fs::create_dir_all(&failures).ok()?;
        std::fs::rename(directory, &to).ok()?;
        Some(to)
    });
    let kept = moved.unwrap_or_else(|| directory.to_owned());
    eprintln!("logs: {}", kept.display());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    all.push((running_test(), kept.clone()));
    kept
}

/// The directories that were kept for a test.
fn kept_directories(test: &str) -> Vec<PathBuf> {
    let all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let of_test = all.iter().filter(|(name, _)| name == test);
    of_test.map(|(_, directory)| directory.clone()).collect()
}

/// Writes to standard error past the capture of the test runner, in one piece.
pub fn report(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Reports that the calling test, or a part of it, does not run here, and why: a line
/// `SKIPPED: name: why` on standard error, past the capture of the test runner, once for each test
/// and reason. `.ci/run` counts these lines, and fails if `.ci/skips` does not list a reason.
pub fn skip<'a>(why: impl Into<Box<dyn Error + 'a>>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("SKIPPED: {}: {}\n", running_test(), chain(&*why.into()));
    // A test that failed while it held the lock does not silence the others.
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(line.clone()) {
        report(&line);
    }
}

/// Returns the name of the test of this thread: the runner names its threads after tests, unless there
/// is only one. Without a runner, and in a thread of a test, the name of the program.
#[must_use]
pub fn running_test() -> String {
    let thread = std::thread::current();
    if let Some(name) = thread.name().filter(|name| *name != "main") {
        return name.to_owned();
    }
    let named = std::env::var(INSIDE).ok().or_else(repeat::repeated_name);
    let program = || {
        let program = std::env::current_exe().ok()?;
        let stem = program.file_stem()?.to_str()?;
        // Cargo appends a hash to the name.
        Some(stem.rsplit_once('-').map_or(stem, |(name, _)| name).to_owned())
    };
    named.or_else(program).unwrap_or_default()
}

/// In a user namespace, interfaces need a device file that the user may open.
fn access() -> Option<Access> {
    let access = netns::probe().map_err(|error| skip(&error)).ok()?;
    if access == Access::UserNamespace && File::options().read(true).write(true).open(TUN).is_err() {
        skip(format!("{TUN} may not be opened by this user"));
        return None;
    }
    Some(access)
}

/// An error with its sources, in one line.
fn chain(error: &(dyn Error + '_)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Turns `crate::module::test::{{closure}}` into `module::test`.
fn test_name(type_name: &str) -> &str {
    let name = type_name.strip_suffix("::{{closure}}").unwrap_or(type_name);
    name.split_once("::").map_or(name, |(_, rest)| rest)
}

fn run_again(name: &str) {
    let maps = IdMaps::new();
    let result = std::env::current_exe().and_then(|test| {
        let mut command = Command::new(test);
        command
            .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(INSIDE, name);
        // SAFETY: between fork and exec this makes system calls only.
        unsafe { command.pre_exec(move || netns::enter_user_namespace(&maps)) };
        command.output()
    });
    let text = result.map_or_else(
        |error| error.to_string(),
        |output| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            text(&output.stdout) + &text(&output.stderr)
        },
    );
    if text.contains("SKIPPED: ") {
        let lines = text.lines().filter(|line| line.starts_with("SKIPPED: "));
        for line in lines {
            report(&format!("{line}\n"));
        }
    }
    // The count guards against a name that matches nothing.
    assert!(
        text.contains("test result: ok. 1 passed"),
        "{name} in a user namespace: {}\n{}",
        repeat::reason(&text),
        repeat::indented(&text)
    );
}

/// Makes the socket send its IPv4 datagrams without a checksum.
///
/// # Errors
/// What the system says.
pub fn send_without_checksum(socket: impl AsFd) -> io::Result<()> {
    crate::syscall::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
}

/// Lets the path fragment the socket's IPv4 datagrams (DF is clear), and makes the system ignore
/// the path MTU that it knows.
///
/// # Errors
/// What the system says.
pub fn allow_fragments(socket: impl AsFd) -> io::Result<()> {
    Ok(set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT)?)
}
