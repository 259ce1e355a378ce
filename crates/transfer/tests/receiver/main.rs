//! The receiving end, with a sending end that is played: what it stores, and what it refuses.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod ends;
mod hostile;
mod limits;
mod power;
mod resume;
mod sender;
mod stores;
