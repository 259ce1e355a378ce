//! Request connections that stay, and say each few seconds that they are alive.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::send::{ALIVE, SILENCE};
use crate::wire::message;

/// How long a message that has begun may take.
const MESSAGE: Duration = Duration::from_secs(10);

/// The times of a connection that stays.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// The pause between two signs of life.
    pub alive: Duration,
    /// A connection on which nothing came for this long is dead.
    pub silence: Duration,
}

impl Default for Beat {
    fn default() -> Self {
        Self {
            alive: ALIVE,
            silence: SILENCE,
        }
    }
}

/// Sends `alive` again and again, and calls `hear` with each message, until that says why the connection ends, or it
/// is lost. Returns the reason, for people.
pub(crate) fn keep(
    stream: &TcpStream,
    beat: Beat,
    alive: &[u8],
    mut hear: impl FnMut(&[u8]) -> Result<(), String>,
) -> String {
    let mut kept = || -> io::Result<String> {
        let (mut heard, mut told) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if now >= heard + beat.silence {
                return Ok("the connection fell silent".to_owned());
            }
            if now >= told + beat.alive {
                told = now;
                message::write(&mut &*stream, alive)?;
            }
            let next = (told + beat.alive).min(heard + beat.silence);
            let wait = next.saturating_duration_since(now).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(wait))?;
            match stream.peek(&mut [0; 1]) {
                Ok(0) => return Ok("the other end has ended the connection".to_owned()),
                Ok(_) => {
                    stream.set_read_timeout(Some(MESSAGE))?;
                    if let Err(why) = hear(&message::read(&mut &*stream)?) {
                        return Ok(why);
                    }
                    heard = Instant::now();
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    };
    kept().unwrap_or_else(|error| format!("the connection is lost ({error})"))
}
