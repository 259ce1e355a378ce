//! The daemon's rights: those that it gives up at its start, and the log and the status of the
//! result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_control::status::{GuardStatus, RightsStatus};
use weft_host::broker::Broker;
use weft_os::process::{
    Access, Confinement, LockMemoryError, Part, PrivilegeError, Rights, UserChange, lock_memory, service_user,
};
use weft_store::state::StateDir;

use super::DaemonError;

/// The rights that remain.
#[derive(Debug)]
pub(super) struct DaemonRights {
    user: UserChange,
    confinement: Confinement,
    memory: Result<(), LockMemoryError>,
    broker: BrokerState,
}

/// The state of the broker.
#[derive(Debug)]
enum BrokerState {
    Started(Arc<AtomicBool>),
    Failed(String),
}

/// Gives up every right but CAP_NET_ADMIN (and CAP_SYS_NICE, if the lanes need it), uid 0, and all
/// files but those of the state directory that the daemon writes; changes the owner of these first.
/// Logs the result.
pub(super) fn give_up(state: StateDir, nice: bool) -> Result<(StateDir, DaemonRights), DaemonError> {
    let user = service_user().map_err(|source| PrivilegeError::Io {
        what: "find the user to become",
        source,
    })?;
    let memory = lock_memory();
    if let Some(ids) = user.ids() {
        state.hand_over(ids)?;
    }
    state.open_control(user.ids())?;
    let state = state.enter()?;
    let paths = state.paths();
    let kept: Vec<_> = [paths.directory()]
        .into_iter()
        .chain(paths.control_directory())
        .map(|directory| (directory, Access::Keep))
        .collect();
    let rights = Rights {
        net_admin: true,
        nice,
        user: user.ids(),
        files: Some(&kept),
        filter: true,
        packet_filter: false,
    };
    let confinement = rights.confine()?;
    let rights = DaemonRights {
        user,
        confinement,
        memory,
        broker: BrokerState::Failed("not started".to_owned()),
    };
    rights.log();
    Ok((state, rights))
}

impl DaemonRights {
    /// Watches the broker, on the runtime on which it is called.
    pub(super) fn watch(&mut self, broker: &mut std::io::Result<Broker>) {
        let alive = broker.as_mut().map_err(|error| error.to_string());
        let alive = alive.and_then(|broker| broker.take_life().map_err(|error| error.to_string()));
        let mut alive = match alive {
            Ok(Some(alive)) => alive,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(error = why, "no broker: names are not set up in the system");
                self.broker = BrokerState::Failed(why);
                return;
            }
        };
        let ended = Arc::new(AtomicBool::new(false));
        self.broker = BrokerState::Started(Arc::clone(&ended));
        tokio::spawn(async move {
            alive.ended().await;
            ended.store(true, Ordering::Relaxed);
            tracing::warn!("the broker ended: names are no longer set up in the system; start weft again");
        });
    }

    fn log(&self) {
        let status = self.status();
        match &status.root {
            // In a user namespace without another user this is not an error, so the level is not
            // WARN.
            Some(why) => tracing::info!(why, "the daemon stays uid 0"),
            None => tracing::debug!(uid = status.uid, "rights given up"),
        }
        for (what, guard) in [
            ("files are not out of reach (Landlock)", &status.landlock),
            ("system calls are not filtered (seccomp)", &status.seccomp),
        ] {
            if let Some(why) = &guard.why {
                tracing::info!(why, "{what}");
            }
        }
        if let Some(why) = &status.memory_locked.why {
            tracing::debug!(why, "memory may be swapped out");
        }
    }

    pub(super) fn status(&self) -> RightsStatus {
        let (uid, root) = match &self.user {
            UserChange::NotRoot(uid) => (*uid, None),
            UserChange::To(ids) => (ids.uid, None),
            UserChange::Impossible(why) => (0, Some(why.clone())),
        };
        RightsStatus {
            uid,
            root,
            landlock: part(&self.confinement.landlock),
            seccomp: part(&self.confinement.seccomp),
            memory_locked: GuardStatus::new(self.memory.as_ref().err().map(ToString::to_string)),
            broker: GuardStatus::new(match &self.broker {
                BrokerState::Started(ended) if ended.load(Ordering::Relaxed) => Some("it ended".to_owned()),
                BrokerState::Started(_) => None,
                BrokerState::Failed(why) => Some(why.clone()),
            }),
        }
    }
}

fn part(part: &Part) -> GuardStatus {
    GuardStatus::new(match part {
        Part::Active => None,
        Part::Unused => Some("not used".to_owned()),
        Part::Missing(why) => Some(why.clone()),
    })
}
