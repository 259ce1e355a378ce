//! A host with files of its own where root's daemon and its service have theirs: `/run`, `/var/lib`,
//! `/etc` and, for the service, the directories of units and programs. And other users of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::host::Host;
use weft_lab::world::World;
use weft_os::process::{UserChange, service_user};
use weft_os::test_support::skip;

use super::{MINUTE, PATIENCE, WEFT, wait_until};

/// The program on the machine, where every user can run it.
pub const PROGRAM: &str = "/run/test/weft";
/// A directory of programs that comes before the system's.
pub const FAKES: &str = "/run/test/bin";
/// The number of the group `weft` on the machine.
pub const GROUP: u32 = 4962;

/// Hides the machine's files from this system.
const PREPARE: &str = r#"
set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/test/bin /run/test/etc
# Before what it may be below is hidden.
touch /run/test/weft
mount --bind "$0" /run/test/weft
for directory in /var/lib /usr/local/bin; do mount -t tmpfs -o mode=755 none $directory; done
cp -a /etc/. /run/test/etc 2> /dev/null || true
rm -f /run/test/etc/resolv.conf
echo 'nameserver 192.0.2.53' > /run/test/etc/resolv.conf
mount --bind /run/test/etc /etc
if [ -d /etc/systemd/system ]; then mount -t tmpfs -o mode=755 none /etc/systemd/system; fi
printf 'root:x:0:\nweft:x:4962:\n' > /run/test/group
mount --bind /run/test/group /etc/group
"#;

/// Holds the files.
const HOLD: &str = "touch /run/test/ready; exec sleep 600";

/// Starts systemd with the few units that a service needs. `$1` is the cgroup of the machine, whose
/// hierarchy is the only one that its systemd sees.
const BOOT: &str = r#"
mount -t proc proc /proc
units=/usr/lib/systemd/system
for directory in $units /usr/lib/systemd/system-generators /tmp; do mount -t tmpfs -o mode=755 none $directory; done
for name in sysinit basic shutdown multi-user network-pre network; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\nAllowIsolate=yes\n' $name > $units/$name.target
done
if test -d /sys/fs/cgroup/unified; then
    umount -R /sys/fs/cgroup
    mount -t tmpfs -o mode=755 none /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
    mount -t cgroup2 none /sys/fs/cgroup/unified
else
    umount -R /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
fi
touch /run/test/ready
exec env container=test /usr/lib/systemd/systemd --system --unit=multi-user.target --log-target=console
"#;

/// The settings of a message bus on which everything is allowed.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow eavesdrop="false"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/>
    <allow receive_type="error"/><allow receive_type="signal"/>
  </policy>
</busconfig>
"#;

/// Moves this shell into a cgroup of its own, and starts the rest in namespaces that end with it.
const CGROUP: &str = r#"
set -e
for root in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
    if test -e $root/cgroup.procs; then mkdir -p $root/$2; echo $$ > $root/$2/cgroup.procs; fi
done
exec unshare --mount --pid --fork --kill-child --cgroup --uts sh -c "$0" "$1"
"#;

/// A user of the machine.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub uid: u32,
    /// A further group.
    pub group: Option<u32>,
}

/// Root.
pub const ROOT: User = User { uid: 0, group: None };

/// A user without a group beside its own.
pub const fn user(uid: u32) -> User {
    User { uid, group: None }
}

pub struct Machine {
    pub host: Host,
    world: Arc<World>,
    holder: LoggedChild,
    /// A process in the machine's namespaces.
    pid: u32,
    /// Those that it has beside that of mounts.
    namespaces: &'static [&'static str],
    /// The name of its cgroup.
    cgroup: Option<String>,
}

impl Machine {
    pub fn new() -> Self {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        Self::on(&Arc::new(world), host)
    }

    /// A machine that is this host of a world.
    pub fn on(world: &Arc<World>, host: Host) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{PREPARE}{HOLD}"), WEFT]);
        let log = world.directory().join(format!("{}-files.log", host.name()));
        let holder = LoggedChild::start(&host, command, &log).unwrap();
        let machine = Self {
            host,
            world: Arc::clone(world),
            pid: holder.pid(),
            holder,
            namespaces: &[],
            cgroup: None,
        };
        wait_until(PATIENCE, "the machine has its files", || {
            machine.path("/run/test/ready").exists()
        });
        machine
    }

    /// A machine with systemd as its init; `None`, with a skip, if it does not start here.
    pub fn booted() -> Option<Self> {
        let world = Arc::new(World::new().unwrap());
        let host = world.host("a").unwrap();
        Self::booted_on(&world, host)
    }

    /// The same on this host of a world.
    pub fn booted_on(world: &Arc<World>, host: Host) -> Option<Self> {
        Self::booted_after(world, host, "")
    }

    /// The same after a script, which has the files of the machine.
    pub fn booted_after(world: &Arc<World>, host: Host, script: &str) -> Option<Self> {
        if !Path::new("/usr/lib/systemd/systemd").exists() {
            skip("systemd is not installed");
            return None;
        }
        // Tests run in one process, and each machine needs a hierarchy that ends with it.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("weft-test-{}-{number}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", CGROUP, &format!("{PREPARE}{script}{BOOT}"), WEFT, &cgroup]);
        let log = world.directory().join("boot.log");
        let holder = LoggedChild::start(&host, command, &log).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", holder.pid());
        let end = Instant::now() + PATIENCE;
        let mut machine = Self {
            host,
            world: Arc::clone(world),
            pid: 0,
            namespaces: &["--pid", "--cgroup"],
            cgroup: Some(cgroup),
            holder,
        };
        loop {
            let text = fs::read_to_string(&children).unwrap_or_default();
            machine.pid = text.trim().parse().unwrap_or_default();
            if machine.pid != 0 && machine.path("/run/systemd/private").exists() {
                let state = machine.run(ROOT, &["systemctl", "is-system-running"]);
                if matches!(&*String::from_utf8_lossy(&state.stdout), "running\n" | "degraded\n") {
                    return Some(machine);
                }
            }
            if Instant::now() > end {
                let log = fs::read_to_string(&log).unwrap_or_default();
                skip(format!(
                    "systemd does not start in namespaces: {}",
                    log.lines().last().unwrap_or("no reason")
                ));
                return None;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process in its namespaces: its init, if it has booted.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A path of the machine, as this process reaches it.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// Writes a file of the machine, and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Ends a program that has written its process number to `/run/test/NAME.pid`: the numbers are those
    /// of the machine.
    pub fn end(&self, name: &str, child: &mut LoggedChild) {
        let kill = format!("kill $(cat /run/test/{name}.pid)");
        done(&self.run(ROOT, &["sh", "-c", &kill]));
        assert!(child.wait(PATIENCE).unwrap().success());
    }

    /// Adds a user and a group of a service, in the place of those of the system.
    pub fn add_service_user(&self, name: &str, id: u32) {
        for (file, line) in [
            ("/etc/passwd", format!("{name}:x:{id}:{id}::/:/usr/sbin/nologin\n")),
            ("/etc/group", format!("{name}:x:{id}:\n")),
        ] {
            let text = fs::read_to_string(self.path(file)).unwrap();
            let own = format!("{name}:");
            let kept = text.lines().filter(|line| !line.starts_with(&own));
            let text: String = kept.map(|line| format!("{line}\n")).collect();
            fs::write(self.path(file), text + &line).unwrap();
        }
    }

    /// A command of a user of the machine.
    pub fn command(&self, user: User, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--target", &self.pid.to_string()])
            .args(self.namespaces);
        command.arg("--");
        if user.uid != 0 {
            let User { uid, group } = user;
            command.args(["setpriv", &format!("--reuid={uid}"), &format!("--regid={uid}")]);
            command.arg(group.map_or_else(|| "--clear-groups".to_owned(), |group| format!("--groups={group}")));
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(arguments)
            .env_remove("WEFT_STATE")
            .env_remove("XDG_STATE_HOME");
        command
            .env("HOME", format!("/run/home/{}", user.uid))
            .env("PATH", format!("{FAKES}:{path}"));
        command
    }

    /// Runs `weft` as a user.
    pub fn weft(&self, user: User, arguments: &[&str]) -> Output {
        self.run(user, &[&[PROGRAM], arguments].concat())
    }

    /// Runs a command as a user.
    pub fn run(&self, user: User, arguments: &[&str]) -> Output {
        self.host.command(self.command(user, arguments), MINUTE).unwrap()
    }

    /// Starts a command as root, with its output in a log of this name.
    pub fn background(&self, name: &str, arguments: &[&str]) -> LoggedChild {
        let log = self.world.directory().join(format!("{}-{name}.log", self.host.name()));
        LoggedChild::start(&self.host, self.command(ROOT, arguments), &log).unwrap()
    }

    /// Starts the message bus of the system.
    pub fn start_bus(&self) -> LoggedChild {
        self.write("/run/test/bus.conf", BUS);
        fs::create_dir_all(self.path("/run/dbus")).unwrap();
        let arguments = [
            "dbus-daemon",
            "--config-file=/run/test/bus.conf",
            "--nofork",
            "--nopidfile",
        ];
        let bus = self.background("bus", &arguments);
        wait_until(PATIENCE, "the bus is there", || {
            self.path("/run/dbus/system_bus_socket").exists()
        });
        bus
    }

    /// What programs of the machine get for a name or an address from a database of getent(1).
    pub fn look_up(&self, database: &str, name: &str) -> Vec<String> {
        let output = self.run(ROOT, &["getent", database, name]);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect();
        lines.dedup();
        lines
    }

    /// Starts `weft up` as root and waits until it answers commands that name no directory.
    pub fn up(&self, arguments: &[&str]) -> LoggedChild {
        let daemon = self.start(&[&["up"], arguments].concat());
        wait_until(PATIENCE, "the daemon answers", || {
            self.weft(ROOT, &["status"]).status.success()
        });
        daemon
    }

    /// Starts `weft` as root, with its output in a log.
    pub fn start(&self, arguments: &[&str]) -> LoggedChild {
        self.background("weft", &[&[PROGRAM], arguments].concat())
    }

    /// The state of a daemon with this configuration, before its first start.
    pub fn configure(&self, text: &str) {
        use std::os::unix::fs::DirBuilderExt as _;
        let state = self.path("/var/lib/weft");
        fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        fs::write(state.join("weft.toml"), text).unwrap();
        let made = self.weft(ROOT, &["identity", "new"]);
        assert!(made.status.success(), "{made:?}");
    }

    /// Runs `work` on a thread of this user, which can connect to the sockets of `directory`.
    pub fn as_user<T: Send>(&self, user: User, directory: &str, work: impl FnOnce(&Sockets) -> T + Send) -> T {
        let sockets = Sockets(fs::File::open(self.path(directory)).unwrap());
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let groups: Vec<_> = user.group.into_iter().map(Gid::from_raw).collect();
                set_thread_groups(&groups).unwrap();
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.uid));
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
                work(&sockets)
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let Some(cgroup) = &self.cgroup else { return };
        // Its processes end with the holder.
        let _ = self.holder.kill();
        for root in ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            remove_cgroup(&Path::new(root).join(cgroup));
        }
    }
}

/// Removes a cgroup and those below it, as soon as their processes have ended.
pub fn remove_cgroup(path: &Path) {
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_cgroup(&entry.path());
    }
    for _ in 0..100 {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(20)),
            _ => break,
        }
    }
}

/// A directory with sockets.
pub struct Sockets(fs::File);

impl Sockets {
    pub fn connect(&self) -> std::io::Result<Connection> {
        let path = format!("/proc/self/fd/{}/control.sock", self.0.as_raw_fd());
        Ok(Connection(BufReader::new(UnixStream::connect(Path::new(&path))?)))
    }
}

/// A connection to a control socket.
#[derive(Debug)]
pub struct Connection(BufReader<UnixStream>);

impl Connection {
    /// Sends one request, such as `"cmd":"status"`, and reads the answer.
    pub fn ask(&mut self, fields: &str) -> Value {
        let request = format!("{{\"schema\":\"weft.control/1\",{fields}}}\n");
        // The server may have closed the connection; its reason can still be read.
        let _ = self.0.get_mut().write_all(request.as_bytes());
        self.next()
    }

    /// Reads one more answer.
    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// The directory that has the files of a package: the one in an environment variable, for systems on
/// which the package is unpacked and not installed, or the root.
pub fn files_of_package(variable: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// Whether [`Machine::start_bus`] can be used.
pub fn has_bus() -> bool {
    Path::new("/usr/bin/dbus-daemon").exists()
}

/// Whether processes can be those of other users here. If not, it reports that as a skip.
pub fn has_other_users() -> bool {
    match service_user().unwrap() {
        UserChange::To(_) => true,
        UserChange::NotRoot(_) => {
            skip("other users of the host: the test does not run as root");
            false
        }
        UserChange::Impossible(why) => {
            skip(format!("other users of the host: {why}"));
            false
        }
    }
}

/// Standard output of a command that succeeded.
pub fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of a command that failed with exit status 1.
pub fn failed(output: &Output) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(line.lines().count(), 1, "{output:?}");
    line
}
