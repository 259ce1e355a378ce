//! The daemon's side.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::asynchronous;
use super::message::{MAX_REPLY, MAX_USER, Reply, Request};
use super::server::Options;
use crate::dns::Search;
use crate::exit::{ServeExit, UseExit};
use crate::faults::{Examined, Wanted};
use crate::flows::{Flow, Interest};

/// Time limit of a request: longer than those of the calls that it makes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit of a request before the daemon runs: the start of the broker, and its lists.
const STARTING: Duration = Duration::from_secs(10);
/// How long the daemon waits at its end for the end of the broker, in steps.
const ENDING: [Duration; 300] = [Duration::from_millis(10); 300];

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    requests: Client,
    life: Option<StdStream>,
}

impl Broker {
    /// Starts a broker with the rights of this process. `program` is the program that has the
    /// command `broker`.
    ///
    /// # Errors
    /// The error of the system.
    pub fn start(program: &Path, options: &Options) -> io::Result<Self> {
        let (requests, theirs) = StdStream::pair()?;
        let (life, their_life) = StdStream::pair()?;
        let mut command = Command::new(program);
        command
            .arg("broker")
            .arg("--interface")
            .arg(options.interface.to_string());
        command.arg("--key").arg(options.key.to_string());
        if let Some(config) = &options.config {
            command.arg("--config").arg(config);
        }
        if let Some(resolv_conf) = &options.resolv_conf {
            command.arg("--resolv-conf").arg(resolv_conf);
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::from(OwnedFd::from(their_life)));
        // No environment variable of the user affects a process that runs with root's rights.
        command.env_clear().current_dir("/");
        let child = command.spawn()?;
        Ok(Self {
            child,
            requests: Client {
                stream: Arc::new(Mutex::new(requests)),
            },
            life: Some(life),
        })
    }

    /// The process ID of the broker.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a client that sends requests. All clients of a broker share one stream, and wait for
    /// each other.
    #[must_use]
    pub fn client(&self) -> Client {
        self.requests.clone()
    }

    /// Sends [`Request::ListFlows`] and waits for the answer, before there is a runtime and any client. A
    /// broker that does not answer in time gets no more requests.
    ///
    /// # Errors
    /// One line for the user.
    pub fn list_flows(&self, interest: Interest) -> Result<Vec<Flow>, String> {
        let stream = self.requests.stream.try_lock().map_err(|error| error.to_string())?;
        let exchange = || {
            let mut stream = &*stream;
            stream.set_read_timeout(Some(STARTING))?;
            stream.write_all(&Request::ListFlows(interest).encode())?;
            let mut len = [0; 4];
            stream.read_exact(&mut len)?;
            let len = u32::from_be_bytes(len) as usize;
            if len > MAX_REPLY {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut message = vec![0; len];
            stream.read_exact(&mut message)?;
            stream.set_read_timeout(None)?;
            Reply::decode(&message).map_err(io::Error::other)
        };
        match exchange() {
            Ok(reply) => flows_of(reply),
            Err(error) => {
                let _ = stream.shutdown(Shutdown::Both);
                Err(format!("the broker does not answer: {error}"))
            }
        }
    }

    /// Returns the value that reports the end of the broker; `None` after the first call. Must be
    /// called on a runtime.
    ///
    /// # Errors
    /// The error of the system.
    pub fn take_life(&mut self) -> io::Result<Option<Alive>> {
        let life = self.life.take().map(asynchronous).transpose()?;
        Ok(life.map(|stream| Alive { stream }))
    }
}

fn flows_of(reply: Reply) -> Result<Vec<Flow>, String> {
    match reply {
        Reply::Flows(flows) => Ok(flows),
        Reply::Failed(why) => Err(why),
        Reply::Done | Reply::Refused | Reply::Text(_) => Err("the broker did not list flows".to_owned()),
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.life = None;
        // The broker ends by itself; an unprivileged user cannot end a process of root.
        for pause in ENDING {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(pause);
        }
    }
}

/// The connection that stays open as long as the broker runs.
#[derive(Debug)]
pub struct Alive {
    stream: UnixStream,
}

impl Alive {
    /// Returns when the broker has ended. Safe to cancel.
    pub async fn ended(&mut self) {
        // The broker never sends anything on this stream.
        let _ = self.stream.read_u8().await;
    }
}

/// Sends requests, one at a time.
#[derive(Clone, Debug)]
pub struct Client {
    stream: Arc<Mutex<StdStream>>,
}

impl Client {
    /// Sends [`Request::SetResolver`]. Returns true if programs ask systemd-resolved.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn set_resolver(&self, port: NonZeroU16, search: Search) -> Result<bool, String> {
        let reply = self.ask(&Request::SetResolver { port, search }).await?;
        Ok(reply == Reply::Done)
    }

    /// Sends [`Request::CheckResolver`]. Returns true if programs ask systemd-resolved.
    ///
    /// # Errors
    /// One line for the user: what is not as it was configured.
    pub async fn check_resolver(&self, port: NonZeroU16, search: Search) -> Result<bool, String> {
        let reply = self.ask(&Request::CheckResolver { port, search }).await?;
        Ok(reply == Reply::Done)
    }

    /// Sends [`Request::ReadConfig`], and returns the file.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn read_config(&self) -> Result<String, String> {
        self.text(&Request::ReadConfig).await
    }

    /// Sends [`Request::FindUser`], and returns the number of the user; `None` if there is none of this name.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn find_user(&self, name: &str) -> Result<Option<u32>, String> {
        if name.len() > MAX_USER {
            return Ok(None);
        }
        let text = self.text(&Request::FindUser(name.to_owned())).await?;
        Ok(text.parse().ok())
    }

    /// Sends [`Request::NameServers`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn name_servers(&self) -> Result<Vec<SocketAddr>, String> {
        let text = self.text(&Request::NameServers).await?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Sends [`Request::RestoreConfig`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn restore_config(&self) -> Result<(), String> {
        self.order(&Request::RestoreConfig).await
    }

    /// Sends [`Request::ConfirmConfig`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn confirm_config(&self) -> Result<(), String> {
        self.order(&Request::ConfirmConfig).await
    }

    /// Sends [`Request::TakeResolvConf`], and returns the former text.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn take_resolv_conf(&self, search: Search) -> Result<String, String> {
        self.text(&Request::TakeResolvConf { search }).await
    }

    /// Sends [`Request::ReleaseResolvConf`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn release_resolv_conf(&self) -> Result<(), String> {
        self.order(&Request::ReleaseResolvConf).await
    }

    /// Sends [`Request::UseExit`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn use_exit(&self, exit: &UseExit) -> Result<(), String> {
        self.order(&Request::UseExit(*exit)).await
    }

    /// Sends [`Request::EnableIpv6`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn enable_ipv6(&self) -> Result<(), String> {
        self.order(&Request::EnableIpv6).await
    }

    /// Sends [`Request::Examine`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn examine(&self, wanted: Wanted) -> Result<Examined, String> {
        let text = self.text(&Request::Examine(wanted)).await?;
        serde_json::from_str(&text).map_err(|error| format!("the broker's answer is no document: {error}"))
    }

    /// Sends [`Request::ListFlows`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn list_flows(&self, interest: Interest) -> Result<Vec<Flow>, String> {
        flows_of(self.ask(&Request::ListFlows(interest)).await?)
    }

    /// Sends [`Request::LeaveExit`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn leave_exit(&self, ends: bool) -> Result<(), String> {
        self.order(&Request::LeaveExit { ends }).await
    }

    /// Sends [`Request::ServeExit`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn serve_exit(&self, exit: &ServeExit) -> Result<(), String> {
        self.order(&Request::ServeExit(exit.clone())).await
    }

    /// Sends [`Request::StopServing`].
    ///
    /// # Errors
    /// One line for the user.
    pub async fn stop_serving(&self) -> Result<(), String> {
        self.order(&Request::StopServing).await
    }

    /// Sends a request whose reply is a text.
    async fn text(&self, request: &Request) -> Result<String, String> {
        match self.ask(request).await? {
            Reply::Text(text) => Ok(text),
            Reply::Done | Reply::Failed(_) | Reply::Refused | Reply::Flows(_) => {
                Err("the broker did not answer the request".to_owned())
            }
        }
    }

    /// Sends a request whose reply has no content.
    async fn order(&self, request: &Request) -> Result<(), String> {
        self.ask(request).await.map(drop)
    }

    async fn ask(&self, request: &Request) -> Result<Reply, String> {
        match timeout(PATIENCE, self.exchange(request)).await {
            Ok(Ok(Reply::Failed(why))) => Err(why),
            Ok(Ok(Reply::Refused)) => Err("the broker refused the request".to_owned()),
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(format!("the broker does not answer ({error}); start weft again")),
            Err(_) => Err("the broker does not answer in time; start weft again".to_owned()),
        }
    }

    async fn exchange(&self, request: &Request) -> io::Result<Reply> {
        let stream = self.stream.lock().await;
        let mut stream = asynchronous(stream.try_clone()?)?;
        stream.write_all(&request.encode()).await?;
        let len = stream.read_u32().await? as usize;
        if len > MAX_REPLY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = vec![0; len];
        stream.read_exact(&mut message).await?;
        Reply::decode(&message).map_err(io::Error::other)
    }
}
