//! The daemon's side.

use std::io;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::asynchronous;
use super::message::{MAX_MESSAGE, Reply, Request};
use super::server::Options;

/// How long a request may take: longer than the calls that it makes.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the end of the daemon waits for that of the broker, in steps.
const ENDING: [Duration; 50] = [Duration::from_millis(10); 50];

/// A broker that runs.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    requests: Option<StdStream>,
    life: Option<StdStream>,
}

impl Broker {
    /// Starts one with the rights that this process has. `program` is the one that knows the command `broker`.
    ///
    /// # Errors
    /// What the system said.
    pub fn start(program: &Path, options: &Options) -> io::Result<Self> {
        let (requests, theirs) = StdStream::pair()?;
        let (life, their_life) = StdStream::pair()?;
        let mut command = Command::new(program);
        command
            .arg("broker")
            .arg("--interface")
            .arg(options.interface.to_string());
        command.arg("--key").arg(options.key.to_string());
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::from(OwnedFd::from(their_life)));
        // Nothing of the user's environment decides what runs with root's rights.
        command.env_clear().current_dir("/");
        let child = command.spawn()?;
        Ok(Self {
            child,
            requests: Some(requests),
            life: Some(life),
        })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end by which requests are sent, once.
    pub fn take_client(&mut self) -> Option<Client> {
        self.requests.take().map(|stream| Client { stream })
    }

    /// What tells when it ends, once. Call it on a runtime.
    ///
    /// # Errors
    /// What the system said.
    pub fn take_life(&mut self) -> io::Result<Option<Alive>> {
        let life = self.life.take().map(asynchronous).transpose()?;
        Ok(life.map(|stream| Alive { stream }))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.requests = None;
        self.life = None;
        // It ends by itself, and a user cannot end a process of root's.
        for pause in ENDING {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(pause);
        }
    }
}

/// Lives as long as the broker.
#[derive(Debug)]
pub struct Alive {
    stream: UnixStream,
}

impl Alive {
    /// Returns when the broker has ended. Safe to cancel.
    pub async fn ended(&mut self) {
        // It never sends anything.
        let _ = self.stream.read_u8().await;
    }
}

/// Sends requests, one at a time.
#[derive(Debug)]
pub struct Client {
    stream: StdStream,
}

impl Client {
    /// Asks for [`Request::SetResolver`].
    ///
    /// # Errors
    /// One line for people.
    pub async fn set_resolver(&self, port: NonZeroU16) -> Result<(), String> {
        match timeout(PATIENCE, self.ask(&Request::SetResolver { port })).await {
            Ok(Ok(Reply::Done)) => Ok(()),
            Ok(Ok(Reply::Failed(why))) => Err(why),
            Ok(Ok(Reply::Refused)) => Err("the broker refused the request".to_owned()),
            Ok(Err(error)) => Err(format!("the broker does not answer ({error}); start weft again")),
            Err(_) => Err("the broker does not answer in time; start weft again".to_owned()),
        }
    }

    async fn ask(&self, request: &Request) -> io::Result<Reply> {
        let mut stream = asynchronous(self.stream.try_clone()?)?;
        stream.write_all(&request.encode()).await?;
        let len = usize::from(stream.read_u16().await?);
        let mut message = [0; MAX_MESSAGE];
        let message = message.get_mut(..len).ok_or(io::ErrorKind::InvalidData)?;
        stream.read_exact(message).await?;
        Reply::decode(message).map_err(io::Error::other)
    }
}
