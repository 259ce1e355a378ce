//! What the process of a user that moves files asks the daemon: its own place in the mesh, who may connect to
//! it, and where the other end is. The daemon opens no file of a user.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use weft_config::peer::NodeRef;

/// The TCP ports at which processes receive, so that rules can name them: `tcp/7375-7390`.
pub const PORTS: RangeInclusive<u16> = 7375..=7390;

/// The longest name of a user that is asked for, in bytes.
const MAX_USER: usize = 32;

/// A command about transfers of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TransferCommand {
    /// Where connections of this node begin: [`crate::status::TransferPlace`].
    Place {},
    /// Registers the process of a user as the one that receives: answers of
    /// [`crate::status::TransferEvent`], the first one at once and then one for each connection that is
    /// granted, until the client ends the connection. A later registration of the same user replaces it: the
    /// former client is refused as `transfer`, and its connection ends.
    Receive {
        /// The TCP port of [`PORTS`] at which it listens, at the own address in the mesh.
        port: u16,
    },
    /// Asks a peer for a connection: [`crate::status::TransferOpened`]. It takes 3 s at most.
    Open {
        /// The peer.
        peer: NodeRef,
        /// What the connection is for.
        purpose: TransferPurpose,
        /// The user there; `None` for the only one that receives, or all whose shares are read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferPurpose {
    /// Files go from the node that asks to the other one.
    Send,
    /// Shares of the other node are read.
    Read,
    /// A service of the other node that has a name is used.
    Service,
}

impl TransferCommand {
    /// Checks the values of the fields.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Receive { port } if !PORTS.contains(port) => {
                Err(format!("port is {port}; it is {} to {}", PORTS.start(), PORTS.end()))
            }
            Self::Open { user: Some(user), .. }
                if user.is_empty() || user.len() > MAX_USER || user.contains(char::is_control) =>
            {
                Err(format!(
                    "user is {}; the name of a user has 1 to {MAX_USER} bytes",
                    user.escape_debug()
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlCommand, ErrorCode};

    #[test]
    fn requests_about_transfers_as_documented() {
        for (command, text) in [
            (TransferCommand::Place {}, r#""action":"place""#),
            (
                TransferCommand::Receive { port: 7375 },
                r#""action":"receive","port":7375"#,
            ),
            (
                TransferCommand::Open {
                    peer: "nas".parse().unwrap(),
                    purpose: TransferPurpose::Send,
                    user: None,
                },
                r#""action":"open","peer":"nas","purpose":"send""#,
            ),
            (
                TransferCommand::Open {
                    peer: "nas.home.weft".parse().unwrap(),
                    purpose: TransferPurpose::Read,
                    user: Some("bob".to_owned()),
                },
                r#""action":"open","peer":"nas.home.weft","purpose":"read","user":"bob""#,
            ),
        ] {
            let text = format!("{{\"schema\":\"weft.control/1\",\"cmd\":\"transfer\",{text}}}");
            let command = ControlCommand::Transfer(command);
            assert_eq!(command.to_request(), format!("{text}\n"));
            assert_eq!(ControlCommand::from_request(text.as_bytes()), Ok(command));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let long = format!(r#""open","peer":"nas","purpose":"send","user":"{}""#, "x".repeat(33));
        for rest in [
            r#""receive","port":7374"#,
            r#""receive","port":7391"#,
            r#""receive","port":-1"#,
            r#""receive""#,
            r#""receive","port":7375,"uid":0"#,
            r#""open","peer":"nas","purpose":"own""#,
            r#""open","peer":"nas","purpose":"send","user":"""#,
            r#""open","peer":"nas","purpose":"send","user":"a\nb""#,
            long.as_str(),
        ] {
            let text = format!(r#"{{"schema":"weft.control/1","cmd":"transfer","action":{rest}}}"#);
            let refusal = ControlCommand::from_request(text.as_bytes()).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::BadRequest, "{rest}");
        }
    }
}
