//! Namespaces, and the threads and processes in them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::{fs, panic, thread};

use weft_os::netns::{self, Access, NetNs};
use weft_os::test_support::in_namespaces;

fn mine() -> String {
    let link = fs::read_link("/proc/thread-self/ns/net").unwrap();
    link.to_string_lossy().into_owned()
}

#[test]
fn work_inside_changes_nothing_outside() {
    in_namespaces(|| {
        assert_eq!(netns::enter().unwrap(), Access::Privileged);
        let before = mine();
        let (a, b) = (NetNs::new().unwrap(), NetNs::new().unwrap());
        let (in_a, in_b) = (a.run(mine).unwrap(), b.run(mine).unwrap());
        assert!(before != in_a && before != in_b && in_a != in_b);
        assert_eq!(mine(), before);
        assert_eq!(a.try_clone().unwrap().run(mine).unwrap(), in_a);
        assert!(!a.run(netns::is_init_namespace).unwrap());
        // Threads start in the namespace of the thread that creates them.
        assert_eq!(a.run(|| thread::spawn(mine).join().unwrap()).unwrap(), in_a);
        let held = fs::read_link(format!("/proc/self/fd/{}", a.as_fd().as_raw_fd())).unwrap();
        assert_eq!(held.to_string_lossy(), in_a);

        let interfaces = a.netlink().unwrap().interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(loopback.up && loopback.loopback);

        let passed = panic::catch_unwind(|| a.run(|| panic!("on purpose")));
        assert_eq!(*passed.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    });
}

#[test]
fn a_process_inside_outlives_the_thread_that_started_it() {
    in_namespaces(|| {
        let namespace = NetNs::new().unwrap();
        let script = "read go; readlink /proc/self/ns/net";
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let start = || namespace.spawn(&mut command).unwrap();
        let mut child = thread::scope(|scope| scope.spawn(start).join().unwrap());
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let inside = String::from_utf8(output.stdout).unwrap();
        assert_eq!(inside.trim(), namespace.run(mine).unwrap());

        let missing = namespace.spawn(&mut Command::new("/nonexistent/program")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    });
}

/// Set in the process that starts the child and is then killed.
const VICTIM: &str = "WEFT_TEST_VICTIM";

#[test]
fn a_process_inside_dies_with_the_process_that_started_it() {
    if std::env::var_os(VICTIM).is_some() {
        return be_the_victim();
    }
    in_namespaces(|| {
        let name = "a_process_inside_dies_with_the_process_that_started_it";
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(VICTIM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(victim.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("child ready") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the victim ended too early");
        }
        // The child waits for its input, which only this process can end.
        let input = victim.stdin.take();
        victim.kill().unwrap();
        victim.wait().unwrap();
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("survived"), "{rest}");
    });
}

fn be_the_victim() {
    let script = "echo child ready; read end; echo survived";
    let mut child = NetNs::new()
        .unwrap()
        .spawn(Command::new("sh").args(["-c", script]))
        .unwrap();
    child.wait().unwrap();
}
