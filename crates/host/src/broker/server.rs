//! The broker's side.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use weft_config::Pending;
use weft_noise::PublicKey;
use weft_os::file::with_suffix;
use weft_os::process::{Access, PrivilegeError, Rights, ignore_stop_signals, user_id};
use weft_os::socket::interface_index;
use weft_os::sysctl::enable_ipv6;

use super::asynchronous;
use super::message::{MAX_REPLY, MAX_REQUEST, Reply, Request};
use crate::dns::resolv_conf::{self, ResolvConf};
use crate::dns::zone::DOMAIN;
use crate::dns::{RegisterError, Resolved};
use crate::exit::UseExit;
use crate::exit::host::Host;
use crate::exit::kept::{self, Left};
use crate::exit::watch::{Loss, Watch};
use crate::faults::{Wanted, examine};
use crate::flows;
use crate::interface::plain_name;
use crate::managers::Unmanaged;
use crate::routes;

/// Paths of `resolvectl`, in the order in which they are tried. `PATH` is not used, because the
/// environment may be a user's.
const RESOLVECTL: [&str; 3] = [
    "/usr/bin/resolvectl",
    "/bin/resolvectl",
    "/run/current-system/sw/bin/resolvectl",
];

/// The least time between two lines about a program that makes the same change again and again.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The servers that systemd-resolved asks.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// The parameters of a broker, set at its start, before its daemon reads any data from other nodes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The index of the daemon's interface.
    pub interface: u32,
    /// The public key of the daemon's node.
    pub key: PublicKey,
    /// The configuration file, absolute, if there is one.
    pub config: Option<PathBuf>,
    /// The file in the form of resolv.conf(5) that may be replaced, absolute, if there is one.
    pub resolv_conf: Option<PathBuf>,
}

/// The reason why a broker did not start, or ended before its daemon.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Unneeded rights could not be given up.
    #[error("{0}")]
    Privileges(#[from] PrivilegeError),
    /// Standard input is not a socket, or the system has no memory left.
    #[error("the broker is started by `weft up` alone ({0})")]
    Socket(#[from] io::Error),
    /// The former resolv.conf could not be put back.
    #[error("{} could not be put back ({error}); the former file is beside it, as .before-weft", .path.display())]
    Restore {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Serves the daemon at standard input until the daemon ends. Standard output is a socket that
/// closes when the daemon ends.
///
/// Must be called while the process has one thread.
///
/// # Errors
/// [`BrokerError`]
pub fn serve(options: Options) -> Result<(), BrokerError> {
    // A terminal and a service manager signal the whole process group; the broker runs until its
    // daemon has ended.
    ignore_stop_signals()?;
    let interface = options.interface;
    let unmanaged = leave_alone(interface);
    give_up_rights(&options, &unmanaged)?;
    let resolv_conf = options.resolv_conf.as_deref().map(ResolvConf::new);
    let requests = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let life = StdStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut requests, mut life) = (asynchronous(requests)?, asynchronous(life)?);
        let host = Host::new(interface);
        let mut broker = Broker::new(options, host);
        let ended = tokio::select! {
            ended = broker.answer_all(&mut requests) => ended,
            // The daemon never sends anything on this stream, so any result of the read means the
            // end.
            _ = life.read_u8() => Ok(()),
        };
        broker.host.end().await;
        ended
    });
    unmanaged.remove();
    // The daemon has put it back, unless it was killed.
    let restored = resolv_conf.map(|file| (file.restore(), file));
    if let Err(error) = routes::remove_left(interface) {
        tell(&format!("the rules that led packets to members stay: {error}"));
    }
    match restored {
        Some((Err(error), file)) => Err(BrokerError::Restore {
            path: file.path().to_owned(),
            error,
        }),
        _ => Ok(ended?),
    }
}

/// Has programs that manage interfaces leave this one alone.
fn leave_alone(interface: u32) -> Unmanaged {
    let Ok(Some(interface)) = plain_name(interface) else {
        return Unmanaged::default();
    };
    let (unmanaged, refused) = Unmanaged::write(&interface);
    for error in refused {
        tell(&format!(
            "a program that manages interfaces is not told to leave {interface} alone: {error}"
        ));
    }
    unmanaged
}

/// Keeps the rights that the requests on the list need: uid 0, by which the system's services
/// recognise the caller and which owns the configuration, and CAP_NET_ADMIN for exits. Files can be
/// read and programs run. Only settings of the network, and files beside the configuration, resolv.conf
/// and those of `unmanaged`, can be written: a file that is replaced as a whole needs the right to its
/// directory.
fn give_up_rights(options: &Options, unmanaged: &Unmanaged) -> Result<(), PrivilegeError> {
    let mut files = vec![(Path::new("/"), Access::Run)];
    let settings = Path::new("/proc/sys/net");
    files.extend(settings.exists().then_some((settings, Access::Keep)));
    for (path, access) in [
        (&options.config, Access::Keep),
        (&options.resolv_conf, Access::KeepLinks),
    ] {
        let directory = path.as_deref().and_then(Path::parent);
        files.extend(directory.map(|directory| (directory, access)));
    }
    files.extend(unmanaged.directories().map(|directory| (directory, Access::Keep)));
    let rights = Rights {
        net_admin: true,
        files: Some(&files),
        filter: true,
        packet_filter: true,
        ..Rights::default()
    };
    rights.confine().map(drop)
}

/// Returns true if an error of the stream means that the process at its other end has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

struct Broker {
    options: Options,
    host: Host,
    /// There while the system is changed for an exit.
    watch: Option<Watch>,
    /// When a change by another program was last told of.
    told: Option<Instant>,
}

impl Broker {
    fn new(options: Options, host: Host) -> Self {
        Self {
            options,
            host,
            watch: None,
            told: None,
        }
    }

    /// Answers requests until the daemon has ended.
    async fn answer_all(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        match self.answer_each(stream).await {
            // A daemon that is killed leaves a message half written, or an answer unread.
            Err(error) if is_end(&error) => Ok(()),
            ended => ended,
        }
    }

    /// Answers requests one after the other, until the stream ends.
    async fn answer_each(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        let mut message = [0; MAX_REQUEST];
        while let Some(len) = self.next(stream).await? {
            // The length is invalid, so the start of the next message is unknown.
            let message = message.get_mut(..len).ok_or(io::ErrorKind::InvalidData)?;
            stream.read_exact(message).await?;
            let reply = match Request::decode(message) {
                Ok(request) => self.carry_out(&request).await,
                Err(_) => Reply::Refused,
            };
            stream.write_all(&reply.encode()).await?;
        }
        Ok(())
    }

    /// The length of the next request; `None` at the end of the stream. Until it comes, what other
    /// programs remove is set up again.
    async fn next(&mut self, stream: &mut UnixStream) -> io::Result<Option<usize>> {
        self.follow();
        let mut len = [0; 4];
        let (first, rest) = len.split_at_mut(1);
        loop {
            let changed = async {
                match &mut self.watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // One byte: a read that is cancelled has taken nothing.
                read = stream.read(first) => match read? {
                    0 => return Ok(None),
                    _ => break,
                },
                () = changed => {}
            }
            self.mend().await;
        }
        stream.read_exact(rest).await?;
        Ok(Some(u32::from_be_bytes(len) as usize))
    }

    /// Watches the system while it is changed for an exit.
    fn follow(&mut self) {
        if !self.host.is_changed() {
            self.watch = None;
        } else if self.watch.is_none() {
            match Watch::start(self.options.interface) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => tell(&format!("changes by other programs stay unnoticed: {error}")),
            }
        }
    }

    async fn mend(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let programs = watch.programs();
        let mended = match self.host.mend().await {
            Ok(None) => return watch.note_whole(),
            Ok(Some(what)) => Ok(what),
            Err(error) => Err(error.to_string()),
        };
        let by = programs
            .into_iter()
            .rfind(|program| !self.host.is_own(&program.name, program.pid));
        let loss = Loss { by, mended };
        let again = watch.note(loss.clone());
        if again.is_some() && self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let times = again.map_or_else(String::new, |times| format!(", {times} times within a minute"));
        match &loss.mended {
            Ok(_) => tell(&format!("{loss}{times}; it is set up again")),
            Err(error) => tell(&format!("{loss}{times}: {error}")),
        }
    }

    async fn carry_out(&mut self, request: &Request) -> Reply {
        match request {
            Request::SetResolver { port, search } => {
                let server = self.server(*port);
                let probe = format!("{}.{DOMAIN}", self.options.key);
                match self.resolved() {
                    Ok(resolved) => whether_asked(resolved.register(server, search, &probe).await),
                    Err(missing) => missing,
                }
            }
            Request::CheckResolver { port, search } => match self.resolved() {
                Ok(resolved) => whether_asked(resolved.check(self.server(*port), search).await),
                Err(missing) => missing,
            },
            Request::TakeResolvConf { search } => self.with_resolv_conf(|file| {
                let former = file.take(search).map_err(|error| error.to_string())?;
                Ok(Reply::Text(former))
            }),
            Request::ReleaseResolvConf => self.with_resolv_conf(|file| {
                file.restore()
                    .map_err(|error| format!("{}: {error}", file.path().display()))?;
                Ok(Reply::Done)
            }),
            Request::UseExit(UseExit { strict: false, .. }) | Request::LeaveExit { .. }
                if self.is_left_by_another().await =>
            {
                Reply::Failed(
                    "another weft has left this host closed, for its strict exit: `weft down` opens it".to_owned(),
                )
            }
            Request::UseExit(exit) => {
                self.note_closed(exit.strict);
                reply(self.host.use_exit(exit).await)
            }
            Request::LeaveExit { ends } => {
                let left = self.host.leave_exit(*ends).await;
                if left.is_ok() {
                    self.note_closed(false);
                }
                reply(left)
            }
            Request::ServeExit(exit) => reply(self.host.serve_exit(exit).await),
            Request::StopServing => reply(self.host.stop_serving().await),
            Request::NameServers => {
                let mut servers = name_servers(self.options.resolv_conf.as_deref());
                // The one that this node has registered.
                servers.retain(|server| server.ip() != self.server(NonZeroU16::MIN).ip());
                let lines: Vec<String> = servers.iter().map(ToString::to_string).collect();
                Reply::Text(lines.join("\n"))
            }
            Request::EnableIpv6 => self.switch_ipv6_on(),
            Request::Examine(wanted) => self.examine(wanted).await,
            Request::ListFlows(interest) => Reply::Flows(flows::read(interest)),
            Request::FindUser(name) => match user_id(name) {
                Ok(uid) => Reply::Text(uid.map_or_else(String::new, |uid| uid.to_string())),
                Err(error) => Reply::Failed(format!("/etc/passwd cannot be read: {error}")),
            },
            Request::ReadConfig => self.with_config(|path| weft_config::read_text(path).map(Reply::Text)),
            Request::RestoreConfig => self.with_config(|path| Pending::restore(path).map(|()| Reply::Done)),
            Request::ConfirmConfig => self.with_config(|path| Pending::confirm(path).map(|()| Reply::Done)),
        }
    }

    /// Whether the strict exit of a daemon with another configuration keeps packets in, and that has ended.
    async fn is_left_by_another(&self) -> bool {
        let noted = self.options.config.as_deref().is_some_and(kept::is_noted);
        !self.host.uses_exit() && !noted && kept::look().await.is_ok_and(Left::is_closed)
    }

    /// Notes beside the configuration whether a strict exit keeps packets in.
    fn note_closed(&self, closed: bool) {
        let Some(config) = &self.options.config else { return };
        let noted = match closed {
            true => kept::write_note(config),
            false => kept::remove_note(config),
        };
        if let Err(error) = noted {
            tell(&format!("{}: {error}", kept::note(config).display()));
        }
    }

    async fn examine(&mut self, wanted: &Wanted) -> Reply {
        let rules = self.host.ruleset().await;
        let mut examined = examine(wanted, self.options.interface, rules);
        examined.faults.extend(self.watch.as_ref().and_then(Watch::alarm));
        match serde_json::to_string(&examined) {
            Ok(text) if text.len() < MAX_REPLY => Reply::Text(text),
            Ok(_) => Reply::Failed("too much is wrong to be told".to_owned()),
            Err(error) => Reply::Failed(error.to_string()),
        }
    }

    fn switch_ipv6_on(&self) -> Reply {
        match plain_name(self.options.interface) {
            Ok(Some(interface)) => reply(enable_ipv6(&interface)),
            Ok(None) => Reply::Failed("the interface has gone".to_owned()),
            Err(error) => Reply::Failed(error.to_string()),
        }
    }

    /// The server that systemd-resolved is to ask: this node's own address in the mesh.
    fn server(&self, port: NonZeroU16) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(self.options.key.node_addr().to_ipv6()), port.get())
    }

    /// systemd-resolved as seen from the interface.
    fn resolved(&self) -> Result<Resolved, Reply> {
        let mut installed = RESOLVECTL.into_iter().filter(|path| Path::new(path).exists());
        match installed.next() {
            Some(resolvectl) => Ok(Resolved::new(resolvectl, self.options.interface)),
            None => Err(Reply::Failed("resolvectl is not installed".to_owned())),
        }
    }

    fn with_config(&self, carry_out: impl FnOnce(&Path) -> Result<Reply, weft_config::ConfigError>) -> Reply {
        match &self.options.config {
            Some(path) => carry_out(path).unwrap_or_else(|error| Reply::Failed(error.to_string())),
            None => Reply::Failed("the daemon has no configuration file".to_owned()),
        }
    }

    fn with_resolv_conf(&self, carry_out: impl FnOnce(&ResolvConf) -> Result<Reply, String>) -> Reply {
        match &self.options.resolv_conf {
            Some(path) => carry_out(&ResolvConf::new(path)).unwrap_or_else(Reply::Failed),
            None => Reply::Refused,
        }
    }
}

/// The servers that programs of this system ask, and behind them those that systemd-resolved asks:
/// while an exit fails, its own questions to them fail. `resolv_conf`: the file that may be replaced.
fn name_servers(resolv_conf: Option<&Path>) -> Vec<SocketAddr> {
    let path = resolv_conf.unwrap_or(Path::new(resolv_conf::PATH));
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    // While this node's text is in place, the file before is that of the system.
    let own = read(&with_suffix(path, ".before-weft")).or_else(|| read(path));
    let mut servers = Vec::new();
    for text in own.into_iter().chain(read(Path::new(RESOLVED))) {
        for server in resolv_conf::upstreams(&text, |name| interface_index(name).ok()) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
    }
    servers
}

/// Writes one line to standard error, which is the log of the daemon's service.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "weft broker: {line}");
}

/// The reply about settings of systemd-resolved.
fn whether_asked(set: Result<(), RegisterError>) -> Reply {
    match set {
        Ok(()) if Resolved::is_asked() => Reply::Done,
        Ok(()) => Reply::Text(String::new()),
        Err(error) => Reply::Failed(error.to_string()),
    }
}

fn reply(done: Result<(), impl std::fmt::Display>) -> Reply {
    done.map_or_else(|error| Reply::Failed(error.to_string()), |()| Reply::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that is refused.
    const REQUEST: [u8; 6] = [0, 0, 0, 2, 4, 99];

    fn broker() -> Broker {
        let key = weft_noise::SecretKey::from_bytes(&[7; 32]).unwrap().public();
        let options = Options {
            interface: 1,
            key,
            config: None,
            resolv_conf: None,
        };
        Broker::new(options, Host::new(1))
    }

    fn block_on<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test)
    }

    fn exchange(sent: &[u8]) -> (io::Result<()>, Vec<u8>) {
        block_on(async {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            ours.write_all(sent).await.unwrap();
            ours.shutdown().await.unwrap();
            let mut broker = broker();
            let ended = broker.answer_all(&mut theirs).await;
            drop(theirs);
            let mut replies = Vec::new();
            // A stream that is closed with unread bytes in it is reset.
            let _ = ours.read_to_end(&mut replies).await;
            (ended, replies)
        })
    }

    #[test]
    fn an_unknown_request_is_refused_and_the_next_one_read() {
        let refused = Reply::Refused.encode();
        let (ended, replies) = exchange(&[0, 0, 0, 2, 4, 99, 0, 0, 0, 4, 4, 1, 0, 0]);
        assert!(ended.is_ok());
        assert_eq!(replies, [refused.clone(), refused].concat());
    }

    #[test]
    fn a_request_that_is_too_long_ends_the_broker() {
        let (ended, replies) = exchange(&[0xff; 2000]);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(replies.is_empty());
    }

    #[test]
    fn name_servers_are_those_of_the_file_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let of = |path: &Path| {
            let servers = name_servers(Some(path));
            servers.first().map(ToString::to_string)
        };
        std::fs::write(&path, "nameserver 192.0.2.53\nnameserver 2001:db8::53\n").unwrap();
        assert_eq!(of(&path).as_deref(), Some("192.0.2.53:53"));
        std::fs::write(with_suffix(&path, ".before-weft"), "nameserver 192.0.2.54\n").unwrap();
        std::fs::write(&path, "nameserver 127.0.0.153\nnameserver 192.0.2.54\n").unwrap();
        assert_eq!(of(&path).as_deref(), Some("192.0.2.54:53"));
    }

    #[test]
    fn it_ends_with_its_daemon() {
        assert!(exchange(&[]).0.is_ok());
        assert!(exchange(&[0]).0.is_ok(), "in the middle of a message, too");
        assert!(exchange(&[0, 0, 0, 2, 4]).0.is_ok(), "in the middle of its body");
    }

    #[test]
    fn it_ends_with_a_daemon_that_left_an_answer_unread() {
        block_on(async {
            let (mut daemon, mut stream) = UnixStream::pair().unwrap();
            daemon.write_all(&REQUEST).await.unwrap();
            let mut broker = broker();
            let killed = async {
                daemon.readable().await.unwrap();
                drop(daemon);
            };
            let (ended, ()) = tokio::join!(broker.answer_all(&mut stream), killed);
            assert!(ended.is_ok(), "{ended:?}");
        });
    }

    #[test]
    fn it_ends_with_a_daemon_that_is_gone_before_the_answer() {
        block_on(async {
            let (mut daemon, mut stream) = UnixStream::pair().unwrap();
            daemon.write_all(&REQUEST).await.unwrap();
            drop(daemon);
            let ended = broker().answer_all(&mut stream).await;
            assert!(ended.is_ok(), "{ended:?}");
        });
    }
}
