//! The impairments of a link as a file specifies them: unset ones stay unchanged.

use serde::Deserialize;
use toml::Table;
use weft_scenario::read;

use crate::emulator::{Impairments, TooBig};
use weft_scenario::units::{Rate, Size, Time};

/// The keys of [`Flaws`].
pub(super) const FLAW_KEYS: &[&str] = &[
    "rate",
    "queue",
    "delay",
    "jitter",
    "loss",
    "duplicate",
    "reorder",
    "reorder_by",
    "mtu",
    "too_big",
];

/// Impairments of a link. `None` leaves one unchanged.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flaws {
    /// Rate limit.
    pub rate: Option<Rate>,
    /// Size of the queue before the rate limit.
    pub queue: Option<Size>,
    /// Delay of every frame.
    pub delay: Option<Time>,
    /// Maximum additional delay.
    pub jitter: Option<Time>,
    /// The share of lost frames, from 0 to 1.
    pub loss: Option<f64>,
    /// The share of duplicated frames, from 0 to 1.
    pub duplicate: Option<f64>,
    /// The share of frames that others overtake, from 0 to 1.
    pub reorder: Option<f64>,
    /// How long such frames are held back.
    pub reorder_by: Option<Time>,
    /// The largest IP packet in bytes.
    pub mtu: Option<u16>,
    /// Whether the sender of a larger packet is notified.
    pub too_big: Option<OnTooBig>,
}

/// The treatment of packets that are too big.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTooBig {
    /// They are dropped silently.
    Silent,
    /// They are dropped, and the sender gets an ICMP message.
    Answered,
}

impl Flaws {
    /// Removes its keys from a table.
    pub(super) fn take(table: &mut Table) -> Result<Self, String> {
        let keys = FLAW_KEYS.iter();
        let own = keys.filter_map(|key| table.remove_entry(*key)).collect();
        let flaws: Self = read(own)?;
        flaws.check()?;
        Ok(flaws)
    }

    /// Checks that shares are between 0 and 1.
    pub(super) fn check(&self) -> Result<(), String> {
        let shares = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ];
        for (name, share) in shares {
            if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
                return Err(format!("{name} is {share}; write a share from 0.0 to 1.0"));
            }
        }
        match self.mtu {
            Some(mtu @ ..68) => Err(format!("mtu is {mtu}; IPv4 needs 68 bytes")),
            _ => Ok(()),
        }
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adopts the values that `other` has set.
    pub fn merge(&mut self, other: &Self) {
        fn over<T: Copy>(own: &mut Option<T>, other: Option<T>) {
            *own = other.or(*own);
        }
        over(&mut self.rate, other.rate);
        over(&mut self.queue, other.queue);
        over(&mut self.delay, other.delay);
        over(&mut self.jitter, other.jitter);
        over(&mut self.loss, other.loss);
        over(&mut self.duplicate, other.duplicate);
        over(&mut self.reorder, other.reorder);
        over(&mut self.reorder_by, other.reorder_by);
        over(&mut self.mtu, other.mtu);
        over(&mut self.too_big, other.too_big);
    }

    /// The impairments in the emulator's form.
    #[must_use]
    pub fn impairments(&self) -> Impairments {
        let none = Impairments::default();
        Impairments {
            delay: self.delay.map_or(none.delay, |time| time.0),
            jitter: self.jitter.map_or(none.jitter, |time| time.0),
            loss: self.loss.unwrap_or(none.loss),
            duplicate: self.duplicate.unwrap_or(none.duplicate),
            reorder: self.reorder.unwrap_or(none.reorder),
            reorder_by: self.reorder_by.map_or(none.reorder_by, |time| time.0),
            rate: self.rate.map(|rate| rate.0),
            queue: self.queue.map_or(none.queue, |size| size.0 as usize),
            mtu: self.mtu,
            too_big: match self.too_big {
                Some(OnTooBig::Answered) => TooBig::Icmp,
                _ => TooBig::Silent,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaws(text: &str) -> Result<Flaws, String> {
        let mut table: Table = text.parse().unwrap();
        Flaws::take(&mut table)
    }

    #[test]
    fn set_flaws_reach_the_emulator_and_merging_keeps_the_rest() {
        let mut flaws = flaws("delay = \"13ms\"\nloss = 0.01\nmtu = 1280\ntoo_big = \"answered\"").unwrap();
        flaws.merge(&self::flaws("loss = 0.5\nrate = \"1Mbit\"").unwrap());
        let all = flaws.impairments();
        assert_eq!((all.delay.as_millis(), all.loss, all.rate), (13, 0.5, Some(1_000_000)));
        assert_eq!((all.mtu, all.too_big), (Some(1280), TooBig::Icmp));
        assert_eq!(Flaws::default().impairments(), Impairments::default());
        assert!(Flaws::default().is_empty() && !flaws.is_empty());
    }

    #[test]
    fn shares_and_sizes_have_bounds() {
        assert_eq!(
            flaws("loss = 1.5").unwrap_err(),
            "loss is 1.5; write a share from 0.0 to 1.0"
        );
        assert_eq!(flaws("mtu = 60").unwrap_err(), "mtu is 60; IPv4 needs 68 bytes");
        assert!(flaws("delay = 5").unwrap_err().contains("is not a time"));
        assert!(flaws("too_big = \"loud\"").unwrap_err().contains("unknown variant"));
    }
}
