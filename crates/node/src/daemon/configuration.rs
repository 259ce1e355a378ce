//! The configuration while the daemon runs: it is read again, and what can take effect does.
//!
//! The daemon may not read the file itself any longer, so the broker does. Requests are served one
//! after the other by a task, and their results come back to the daemon's loop.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_config::{Config, ConfigError};
use weft_host::broker::{Broker, Client};

use weft_control::{ErrorCode, Refusal, Reply};

/// Maximum number of requests that wait; a further one is refused.
const MAX_WAITING: usize = 8;

/// The pause before a change is taken back again, if that failed.
const RETRY: Duration = Duration::from_secs(5);

/// What is done with the file before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing. With a time limit, the change waits for a confirmation.
    Reload {
        /// The time limit.
        confirm: Option<Duration>,
    },
    /// The change is confirmed.
    Confirm,
    /// The change is taken back, because its time is over.
    TakeBack,
}

/// A request, and the client that waits for its result, if one does.
#[derive(Debug)]
struct Job {
    order: Order,
    reply: Option<Reply>,
}

/// A served request.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) order: Order,
    /// The file, or the reason in one line.
    pub(super) read: Result<Read, String>,
    pub(super) reply: Option<Reply>,
}

/// The text of the file, and the number of the operator that it names. The broker reads both for the daemon.
#[derive(Debug)]
pub(super) struct Read {
    text: String,
    operator: Result<Option<u32>, String>,
}

impl Read {
    /// Parses the configuration.
    pub(super) fn parse(&self, path: &Path) -> Result<Config, ConfigError> {
        let operator = |_: &str| self.operator.clone().map_err(io::Error::other);
        Config::parse_with(&self.text, path, &operator)
    }
}

/// The configuration in effect, and the requests about its file.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The settings in effect.
    pub(super) config: Config,
    /// The settings of the file that take effect at the next start.
    pub(super) at_start: Vec<&'static str>,
    /// When the last change is taken back.
    ends: Option<Instant>,
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Done>,
}

impl Configuration {
    /// Starts the task, on the runtime on which it is called. `confirm` is the time that a change
    /// before this start still has to be confirmed.
    pub(super) fn start(config: Config, broker: &std::io::Result<Broker>, confirm: Option<Duration>) -> Self {
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let (served, done) = mpsc::channel(MAX_WAITING);
        let broker = broker.as_ref().map(Broker::client).map_err(ToString::to_string);
        tokio::spawn(serve(broker, waiting, served));
        Self {
            config,
            at_start: Vec::new(),
            ends: confirm.map(|left| Instant::now() + left),
            jobs,
            done,
        }
    }

    /// Asks for `order`; the client is answered when its result has taken effect.
    pub(super) fn ask(&mut self, order: Order, reply: Reply) {
        let job = Job {
            order,
            reply: Some(reply),
        };
        if let Err(error) = self.jobs.try_send(job)
            && let Some(reply) = error.into_inner().reply
        {
            let message = "other changes of the configuration are under way; try again";
            reply.refuse(Refusal::new(ErrorCode::Busy, message));
        }
    }

    /// Returns the next served request; never `None` while this value lives. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.done.recv().await
    }

    /// Records the result of a served request.
    pub(super) fn note(&mut self, order: Order) {
        self.ends = match order {
            Order::Reload { confirm: Some(limit) } => Some(Instant::now() + limit),
            Order::Reload { confirm: None } => self.ends,
            Order::Confirm | Order::TakeBack => None,
        };
    }

    /// Returns when the last change is taken back.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ends
    }

    /// Takes the last change back if its time is over.
    pub(super) fn drive(&mut self, now: Instant) {
        if self.ends.is_some_and(|ends| ends <= now) {
            // It is tried again until it has taken effect.
            self.ends = Some(now + RETRY);
            let (order, reply) = (Order::TakeBack, None);
            if self.jobs.try_send(Job { order, reply }).is_ok() {
                tracing::info!("the change of the configuration was not confirmed and is taken back");
            }
        }
    }

    /// Returns how long the last change still has to be confirmed.
    pub(super) fn left(&self) -> Option<Duration> {
        Some(self.ends?.saturating_duration_since(Instant::now()))
    }
}

async fn serve(broker: Result<Client, String>, mut jobs: mpsc::Receiver<Job>, served: mpsc::Sender<Done>) {
    while let Some(Job { order, reply }) = jobs.recv().await {
        let read = match &broker {
            Ok(broker) => carry_out(broker, order).await,
            Err(why) => Err(format!("the broker did not start: {why}")),
        };
        if served.send(Done { order, read, reply }).await.is_err() {
            return;
        }
    }
}

async fn carry_out(broker: &Client, order: Order) -> Result<Read, String> {
    match order {
        Order::Reload { .. } => {}
        Order::Confirm => broker.confirm_config().await?,
        Order::TakeBack => broker.restore_config().await?,
    }
    let text = broker.read_config().await?;
    let operator = match operator_of(&text) {
        Some(name) => broker.find_user(&name).await,
        None => Ok(None),
    };
    Ok(Read { text, operator })
}

/// Returns the operator that a text names; `None` if it names none or is invalid before that setting.
fn operator_of(text: &str) -> Option<String> {
    let named = RefCell::new(None);
    let note = |name: &str| {
        named.replace(Some(name.to_owned()));
        Ok(None)
    };
    // Errors of the text are found when it takes effect.
    let _ = Config::parse_with(text, Path::new(""), &note);
    named.into_inner()
}
