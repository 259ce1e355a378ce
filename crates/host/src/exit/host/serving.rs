//! This host as exit of others.

use super::{ExitError, Host, SetUp};
use crate::exit::ServeExit;
use crate::exit::rules::{self, SERVE};
use crate::exit::saved;

impl Host {
    /// Forwards for other nodes, in place of what it forwarded before.
    ///
    /// # Errors
    /// [`ExitError`]; then nothing is forwarded for them, and all is as before.
    pub async fn serve_exit(&mut self, exit: &ServeExit) -> Result<(), ExitError> {
        let result = self.try_serve(exit).await;
        match &result {
            Ok(()) => self.served = Some(exit.clone()),
            Err(_) => drop(self.stop_serving().await),
        }
        result
    }

    pub(super) async fn try_serve(&mut self, exit: &ServeExit) -> Result<(), ExitError> {
        let tun = self.name()?;
        let mut saved = match self.look(SERVE, false).await? {
            Some(found) => found.saved,
            None => self.serving.saved.clone(),
        };
        let wanted = [(false, exit.ipv4), (true, exit.ipv6)];
        let carried = wanted.into_iter().filter(|(_, carried)| *carried).map(|(ipv6, _)| ipv6);
        let mut closed = [false; 2];
        for ipv6 in carried.clone() {
            let name = saved::switch(ipv6);
            let was_off = saved.value(name).map_or(!saved::forwards(ipv6), |value| value == "0");
            if let (true, Some(closed)) = (was_off, closed.get_mut(usize::from(ipv6))) {
                *closed = true;
                saved.keep(saved::of_forwarding(ipv6));
            }
        }
        self.serving.saved = saved.clone();
        // What shall not be forwarded is refused before anything is.
        let table = self.install(SERVE, &rules::serving(exit, &tun, closed, &saved)).await?;
        for ipv6 in carried.filter(|ipv6| !saved::forwards(*ipv6)) {
            saved::forward(ipv6)?;
        }
        self.serving = SetUp {
            saved,
            table,
            routes: (0, 0),
        };
        Ok(())
    }

    /// Forwards nothing for other nodes any longer. Does nothing if there is nothing to put back.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub async fn stop_serving(&mut self) -> Result<(), ExitError> {
        self.served = None;
        let saved = std::mem::take(&mut self.serving).saved;
        self.remove(SERVE, saved).await
    }
}

/// Whether the host forwards what it is an exit for.
pub(super) fn forwards(exit: &ServeExit) -> bool {
    [(false, exit.ipv4), (true, exit.ipv6)]
        .into_iter()
        .all(|(ipv6, carried)| !carried || saved::forwards(ipv6))
}
