//! Each format: an emitted message parses to the same message; parsed bytes are emitted unchanged.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod samples;

use common::{Tail, formats};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use samples::{bytes, samples};

#[test]
fn every_format_has_samples() {
    let names: Vec<_> = formats().iter().map(|format| format.name).collect();
    let samples = samples();
    assert_eq!(samples.len(), names.len());
    assert!(names.iter().all(|name| samples.contains_key(name)));
}

/// The macro of the samples checks that messages are equal.
#[test]
fn emitted_bytes_are_emitted_again() {
    let samples = samples();
    for format in formats() {
        let strategy = samples[format.name].clone();
        let result = TestRunner::default().run(&strategy, |bytes| {
            let mut again = (format.reemit)(&bytes).unwrap();
            if again.len() < bytes.len() && format.tail == Tail::Ignored {
                again.extend_from_slice(&bytes[again.len()..]);
            }
            prop_assert_eq!(again, bytes);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{}: {error}", format.name));
    }
}

fn check_any(format: common::Format, mut bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let Ok(mut again) = (format.reemit)(&bytes) else {
        return Ok(());
    };
    match format.tail {
        Tail::Refused => prop_assert_eq!(again.len(), bytes.len()),
        Tail::Ignored => prop_assert!(again.len() <= bytes.len()),
    }
    bytes.truncate(again.len());
    (format.normalise)(&mut bytes);
    (format.normalise)(&mut again);
    prop_assert_eq!(again, bytes);
    Ok(())
}

#[test]
fn any_bytes_are_refused_or_emitted_as_they_were() {
    for format in formats() {
        let result = TestRunner::default().run(&bytes(1200), |bytes| check_any(format, bytes));
        result.unwrap_or_else(|error| panic!("{}: {error}", format.name));
    }
}

#[test]
fn damaged_messages_are_refused_or_emitted_as_they_are() {
    let samples = samples();
    for format in formats() {
        let flips = vec((any::<Index>(), any::<u8>()), 0..3);
        let damage = (samples[format.name].clone(), flips, any::<Index>(), bytes(20), 0..3u8);
        let result = TestRunner::default().run(&damage, |(mut bytes, flips, cut, tail, what)| {
            for (at, value) in flips {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
            }
            match what {
                0 => bytes.truncate(cut.index(bytes.len() + 1)),
                1 => bytes.extend_from_slice(&tail),
                _ => {}
            }
            check_any(format, bytes)
        });
        result.unwrap_or_else(|error| panic!("{}: {error}", format.name));
    }
}

/// A message cut at any byte is refused, unless the rest is a message of its own.
#[test]
fn cut_messages_are_refused() {
    let may_shrink = ["session-datagram", "encrypted-message", "established-header"];
    let samples = samples();
    for format in formats().into_iter().filter(|f| !may_shrink.contains(&f.name)) {
        let cut = (samples[format.name].clone(), any::<Index>());
        let result = TestRunner::default().run(&cut, |(bytes, cut)| {
            let minimum = (format.reemit)(&bytes).unwrap().len();
            if minimum > 0 && format.name != "encrypted-header" {
                let cut = cut.index(minimum);
                prop_assert!((format.reemit)(&bytes[..cut]).is_err());
            }
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{}: {error}", format.name));
    }
}
