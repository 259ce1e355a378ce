//! Docker's own daemon on an exit and on the user of one, started before weft and after: its containers
//! reach the Internet, resolve names, and answer at their published ports.
//!
//! The daemon runs in namespaces of mounts and of processes on a host of the test, so it ends with the
//! test, and with it the containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::child::{LoggedChild, run_command};
use weft_lab::host::Host;
use weft_os::test_support::{require_nft, skip};

use super::internet::{EXIT, Internet, LAPTOP, RESOLVER, TARGET, asked, done, run, seen};
use crate::common::machine::remove_cgroup;
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The programs of the packages `docker.io` and `containerd`.
const PROGRAMS: [&str; 4] = ["dockerd", "containerd", "runc", "docker"];

/// Starts the daemon with files of its own: `$1` is its directory, `$2` the file that names the resolver of its
/// host, `$3` its cgroup.
const START: &str = r#"
set -e
mount -t tmpfs -o mode=755 none /run
mkdir /run/lock /run/etc
cp -a /etc/. /run/etc 2> /dev/null || true
rm -f /run/etc/resolv.conf
ln -s "$2" /run/etc/resolv.conf
mount --bind /run/etc /etc
exec dockerd --host "unix://$1/docker.sock" --data-root "$1/data" --exec-root /run/docker \
    --pidfile /run/docker.pid --storage-driver vfs --cgroup-parent "$3"
"#;

/// Makes an image whose programs are those of this system.
const IMAGE: &str = r#"
set -e
mkdir -p "$1/root/usr" "$1/root/tmp"
cd "$1/root"
for name in bin sbin lib lib64; do if test -e /usr/$name; then ln -sf usr/$name $name; fi; done
tar -c . | docker --host "unix://$1/docker.sock" import - tools
"#;

/// A server that tells each client the address that it came by.
const SERVER: &str = "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => 80, Listen => 9) or die $!; \
                      while (my $c = $s->accept) { print $c $c->peerhost; close $c }";

/// A network of the daemon's own making, where containers ask a resolver of Docker's own.
const NETWORK: &str = "apart";
/// The containers, one at the default bridge, and one at that network, each with the port that it publishes.
const CONTAINERS: [(&str, &str, &str); 2] = [("first", "bridge", "8080"), ("second", NETWORK, "8081")];

/// The daemon on a host, and its containers.
struct Docker {
    daemon: LoggedChild,
    directory: PathBuf,
    cgroup: String,
}

impl Docker {
    /// Starts it with its containers; `None`, with a skip, if it does not start here.
    fn start(net: &Internet, host: &Host) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let resolv_conf = net.resolv_conf(host.name());
        let directory = resolv_conf.with_file_name(format!("{}-docker", host.name()));
        fs::create_dir_all(&directory).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("/weft-docker-{}-{number}", std::process::id());
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            START,
            "sh",
        ]);
        command.args([&directory, &resolv_conf]).arg(&cgroup);
        let log = directory.join("log");
        let daemon = LoggedChild::start(host, command, &log).unwrap();
        let mut docker = Self {
            daemon,
            directory,
            cgroup,
        };
        let end = Instant::now() + PATIENCE;
        while !docker.attempt(&["version"]).status.success() {
            if docker.daemon.ended().unwrap().is_some() || Instant::now() > end {
                let log = fs::read_to_string(&log).unwrap_or_default();
                let why = log.lines().last().unwrap_or("no reason");
                skip(format!("dockerd does not start in namespaces: {why}"));
                return None;
            }
            thread::sleep(Duration::from_millis(100));
        }
        docker.run_containers();
        Some(docker)
    }

    fn run_containers(&self) {
        let mut command = Command::new("sh");
        command.args(["-c", IMAGE, "sh"]).arg(&self.directory);
        let made = run_command(command, MINUTE).unwrap();
        assert!(made.status.success(), "{made:?}");
        self.done(&["network", "create", NETWORK]);
        for (name, network, port) in CONTAINERS {
            let published = format!("{port}:80");
            let options = ["--name", name, "--network", network, "--publish", &published];
            let program = ["--volume", "/usr:/usr:ro", "tools", "perl", "-e", SERVER];
            self.done(&[&["run", "--detach"], &options[..], &program[..]].concat());
            wait_until(PATIENCE, "the server listens", || {
                let connect = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/80"];
                self.within(name, &connect).is_some()
            });
        }
    }

    fn attempt(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("docker");
        command
            .env("DOCKER_CONFIG", &self.directory)
            .arg("--host")
            .arg(format!("unix://{}/docker.sock", self.directory.display()))
            .args(arguments);
        run_command(command, MINUTE).unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.attempt(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a program of a container prints; `None` if it fails.
    fn within(&self, container: &str, arguments: &[&str]) -> Option<String> {
        let output = self.attempt(&[&["exec", container, "timeout", "5"], arguments].concat());
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The address by which a container comes to the target; `None` if it does not.
    fn seen(&self, container: &str) -> Option<String> {
        let (ip, port) = TARGET.split_once(':').unwrap();
        let connect = format!("exec 3<>/dev/tcp/{ip}/{port}; cat <&3");
        self.within(container, &["bash", "-c", &connect])
    }

    /// The source of a query by the resolver of a container, as the resolver that answers it sees it.
    fn asked(&self, container: &str) -> Option<String> {
        let found = self.within(container, &["getent", "ahostsv4", "who.asks.example"])?;
        found.split_whitespace().next().map(str::to_owned)
    }

    /// What all containers get: the address at the target, and the source of a query. Both have the same.
    fn gets(&self) -> [Option<String>; 2] {
        let all = CONTAINERS.map(|(name, ..)| [self.seen(name), self.asked(name)]);
        assert_eq!(all[0], all[1], "at the default bridge, and at another network");
        let [one, _] = all;
        one
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        // With it ends the first process of its namespace, and so all of them.
        let _ = self.daemon.kill();
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for root in hierarchies
            .map(|entry| entry.path())
            .chain([PathBuf::from("/sys/fs/cgroup")])
        {
            remove_cgroup(&root.join(self.cgroup.trim_start_matches('/')));
        }
    }
}

/// Whether its programs are there. If not, it reports that as a skip.
fn require_docker() -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let has = |program: &str| {
        path.split(':')
            .any(|directory| Path::new(directory).join(program).exists())
    };
    let all = PROGRAMS.into_iter().all(has);
    if !all {
        skip("Docker is not installed");
    }
    all && require_nft()
}

/// Whether both published ports answer a host at an address.
fn answers(from: &Host, at: &str) -> [bool; 2] {
    CONTAINERS.map(|(_, _, port)| seen(from, &format!("{at}:{port}")).is_some())
}

#[test]
#[ignore = "needs Docker: .ci/long docker"]
fn docker_of_an_exits_user_has_its_network() {
    beside(|| {
        if !require_docker() {
            return;
        }
        for first in [true, false] {
            let net = Internet::start(false);
            let laptop = net.laptop.host();
            fs::write(net.resolv_conf("laptop"), format!("nameserver {RESOLVER}\n")).unwrap();
            let before = if first { Docker::start(&net, laptop) } else { None };
            if first && before.is_none() {
                return;
            }
            net.approve();
            done(&net.laptop, &["set", "--exit", "nas"]);
            wait_until(MINUTE, "packets leave by the exit", || net.passes());
            let Some(docker) = before.or_else(|| Docker::start(&net, laptop)) else {
                return;
            };
            let by_exit = || Some(EXIT.to_owned());
            let served = || ["target", "resolver"].map(|host| answers(net.host(host), LAPTOP));

            assert_eq!(docker.gets(), [by_exit(), by_exit()], "Docker first: {first}");
            assert_eq!(served(), [[true; 2]; 2], "Docker first: {first}");
            done(&net.laptop, &["set", "--exit-strict", "--exit-inbound"]);
            wait_until(MINUTE, "packets leave by the strict exit", || net.passes());
            assert_eq!(docker.gets(), [by_exit(), by_exit()], "strict; Docker first: {first}");
            assert_eq!(served(), [[true; 2]; 2], "strict, inbound; Docker first: {first}");
            done(&net.laptop, &["set", "--exit-inbound=false"]);
            assert_eq!(docker.gets(), [by_exit(), by_exit()], "strict; Docker first: {first}");
            assert_eq!(served(), [[false; 2]; 2], "strict; Docker first: {first}");
            // Its own host reaches both, at the published port, too.
            assert_eq!(answers(laptop, "127.0.0.1"), [true; 2], "Docker first: {first}");

            done(&net.laptop, &["set", "--no-exit"]);
            let [at_target, _] = docker.gets();
            assert_eq!(at_target.as_deref(), Some(LAPTOP), "without the exit");
            assert_eq!(served(), [[true; 2]; 2], "without the exit");
            drop(docker);
            drop(net.warnings());
        }
    });
}

/// Runs the commands by which doctor at the exit mends what Docker's rules do to packets of members: where Docker
/// switches forwarding on, it drops all that no rule of iptables accepts.
fn mend(net: &Internet) {
    let mut named = None;
    wait_until(PATIENCE, "doctor names Docker's chain", || {
        let output = net.nas.attempt(&["doctor", "--json"], MINUTE).unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let faults = found["findings"].as_array().into_iter().flatten();
        let of_docker = |fault: &&Value| fault.to_string().contains("ip filter FORWARD");
        named = faults
            .clone()
            .find(of_docker)
            .map(|fault| fault["fix"].as_str().unwrap().to_owned());
        named.is_some()
    });
    let commands = named.unwrap().replace("sudo ", "");
    run(net.nas.host(), "sh", &["-ec", &commands]);
}

#[test]
#[ignore = "needs Docker: .ci/long docker"]
fn docker_of_an_exit_has_its_network() {
    beside(|| {
        if !require_docker() {
            return;
        }
        for first in [true, false] {
            let mut net = Internet::start(false);
            let before = if first {
                Docker::start(&net, net.nas.host())
            } else {
                None
            };
            if first && before.is_none() {
                return;
            }
            net.approve();
            done(&net.laptop, &["set", "--exit", "nas"]);
            if !first {
                wait_until(MINUTE, "packets leave by the exit", || net.passes());
            }
            let Some(docker) = before.or_else(|| Docker::start(&net, net.nas.host())) else {
                return;
            };
            if first {
                mend(&net);
            }
            wait_until(MINUTE, "packets of the member leave by the exit", || net.passes());
            let is_whole = |net: &Internet, when: &str| {
                let both = [Some(EXIT.to_owned()), Some(EXIT.to_owned())];
                assert_eq!(docker.gets(), both, "{when}; Docker first: {first}");
                let from = [("target", EXIT), ("printer", "192.168.9.1")];
                let served = from.map(|(host, at)| answers(net.host(host), at));
                assert_eq!(served, [[true; 2]; 2], "{when}; Docker first: {first}");
            };
            is_whole(&net, "while the exit serves");
            assert_eq!(asked(net.laptop.host()).as_deref(), Some(EXIT), "names of the member");
            // Members reach the published port as a port of the node, and no container.
            let text = run(net.nas.host(), "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
            let mesh = text.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
            assert_eq!(answers(net.laptop.host(), mesh), [true; 2], "Docker first: {first}");
            run(net.laptop.host(), "nft", &["flush", "chain", "inet", "weft", "output"]);
            assert_eq!(seen(net.laptop.host(), "172.17.0.2:80"), None, "Docker first: {first}");

            done(&net.nas, &["set", "--advertise-exit=false"]);
            wait_until(PATIENCE, "the exit ends", || !net.nas_serves("ipv4"));
            is_whole(&net, "without the exit");
            net.approve();
            is_whole(&net, "with it again");
            assert_eq!(net.nas.stop().unwrap().code(), Some(0));
            is_whole(&net, "without weft");
            net.nas.restart().unwrap();
            net.nas.wait_ready(PATIENCE).unwrap();
            wait_until(MINUTE, "packets leave by the exit again", || net.passes());
            is_whole(&net, "after a restart");
            drop(docker);
            drop(net.warnings());
        }
    });
}
