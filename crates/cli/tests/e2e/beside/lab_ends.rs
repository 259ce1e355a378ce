//! `weft lab up`, `exec` and `down` with the real binary; nothing remains, however a lab ends.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::lab::{PAIR, interfaces, is_used, lab, leftovers, namespaces_of, processes, text};
use crate::common::{MINUTE, WEFT, beside, wait_until};

/// A run is interrupted: its nodes end with it.
fn interrupted(signal: Signal) {
    let temporary = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut command = lab(&["run", "flapping-link", "--out"]);
    command.arg(out.path()).env("TMPDIR", temporary.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let before = interfaces();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ping a to b")));
    let namespaces = namespaces_of(temporary.path());
    assert_eq!(namespaces.len(), 3, "three nodes on three hosts");
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
    wait_until(MINUTE, "nobody is in the namespaces", || {
        !namespaces.iter().any(|ns| is_used(ns))
    });
    assert_eq!(interfaces(), before);
    if signal == Signal::INT {
        assert_eq!(status.code(), Some(130));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    beside(|| interrupted(Signal::INT));
}

#[test]
fn a_killed_run_leaves_no_process_namespace_or_interface() {
    beside(|| interrupted(Signal::KILL));
}

#[test]
fn a_lab_is_up_until_it_is_taken_down() {
    beside(|| {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("pair.toml");
        fs::write(&file, PAIR).unwrap();
        let weft = |arguments: &[&str]| {
            let output = lab(arguments).env("TMPDIR", temporary.path()).output().unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        let file = file.to_str().unwrap();
        let none = "weft: no lab is up; `weft lab up NAME` starts one\n".to_owned();
        assert_eq!(weft(&["down"]), (Some(1), String::new(), none.clone()));
        assert_eq!(
            weft(&["exec", "a", "--", "true"]),
            (Some(1), String::new(), none.clone())
        );

        let (code, said, complained) = weft(&["up", file]);
        assert_eq!(code, Some(0), "{complained}");
        assert!(said.contains("A shell on a host:  weft lab exec a\n"), "{said}");
        let (code, _, complained) = weft(&["up", file]);
        assert_eq!(
            (code, complained.as_str()),
            (Some(1), "weft: a lab is up already; `weft lab down` ends it\n")
        );

        // Each host has its own interfaces, and the node answers there.
        let links = |host: &str| weft(&["exec", host, "--", "cat", "/proc/self/net/dev"]).1;
        assert!(
            links("a").contains("weft0:") && links("a").contains("eth1:"),
            "{}",
            links("a")
        );
        assert!(!links("plain").contains("weft0:") && links("plain").contains("eth0:"));
        let state = said
            .split_whitespace()
            .skip_while(|word| *word != "--state")
            .nth(1)
            .unwrap();
        let status = weft(&["exec", "a", "--", WEFT, "status", "--state", state]);
        assert_eq!(status.0, Some(0), "{status:?}");
        let status = weft(&["exec", "a", "--", WEFT, "status"]);
        assert_eq!(status.0, Some(0), "{status:?}");
        // The exit status and the output of the command.
        assert_eq!(
            weft(&["exec", "a", "--", "sh", "-c", "echo $WEFT_LAB_HOST; exit 7"]),
            (Some(7), "a\n".to_owned(), String::new())
        );
        assert_eq!(weft(&["exec", "a", "--", "sh", "-c", "kill -9 $$"]).0, Some(137));
        let (code, _, complained) = weft(&["exec", "c"]);
        assert_eq!(
            (code, complained.as_str()),
            (Some(2), "weft: the lab has no host \"c\"; it has a, b, plain\n")
        );

        assert_eq!(
            weft(&["down"]),
            (Some(0), "the lab is down\n".to_owned(), String::new())
        );
        assert_eq!(weft(&["down"]), (Some(1), String::new(), none));
        wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
        assert_eq!(leftovers(temporary.path()), Vec::<String>::new());
    });
}

#[test]
fn a_killed_lab_takes_its_nodes_and_commands_along() {
    beside(|| {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("pair.toml");
        fs::write(&file, PAIR).unwrap();
        let weft = |arguments: &[&str]| {
            let mut command = lab(arguments);
            command.env("TMPDIR", temporary.path());
            command
        };
        let output = weft(&["up", file.to_str().unwrap(), "--json"]).output().unwrap();
        let lab: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        assert_eq!(lab["schema"], "weft.lab-up/1");
        let mut shell = weft(&["exec", "plain", "--", "sh", "-c", "echo in; read x"]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        // Open as long as this value lives, so that the shell does not end by itself.
        let _input = shell.stdin.take();
        let namespaces = namespaces_of(temporary.path());
        assert!(namespaces.len() >= 2, "{namespaces:?}");

        let holder = Pid::from_raw(i32::try_from(lab["pid"].as_u64().unwrap()).unwrap()).unwrap();
        kill_process(holder, Signal::KILL).unwrap();
        assert_eq!(
            shell.wait().unwrap().code(),
            Some(137),
            "the shell is killed with the lab"
        );
        wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
        wait_until(MINUTE, "nobody is in the namespaces", || {
            !namespaces.iter().any(|ns| is_used(ns))
        });
        let output = weft(&["down"]).output().unwrap();
        assert_eq!(
            text(&output.stdout),
            "the lab had ended already; its remains are removed\n"
        );
        assert_eq!(leftovers(temporary.path()), Vec::<String>::new());
    });
}
