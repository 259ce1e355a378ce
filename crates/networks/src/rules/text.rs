//! Rules with the names of members in place of their keys.

use std::convert::Infallible;

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::rules::{Rule, RuleError, Selector, Target};
use weft_roster::state::State;

/// Reads a rule in which members may be named, as in `allow from laptop to nas tcp/22`.
///
/// # Errors
/// [`RuleError`], also for a name that no member has.
pub fn from_words(text: &str, state: &State) -> Result<Rule, RuleError> {
    let key = |word: &str| {
        // A key is a key, whatever the names of members are.
        let is_name = word.parse::<PublicKey>().is_err();
        let named = state.names.iter().find(|(_, name)| is_name && name.as_str() == word);
        Ok::<_, Infallible>(named.map(|(key, _)| key.to_string()))
    };
    let Ok(text) = with_parties(text, key);
    text.parse()
}

/// The text of a rule with what `party` returns in the place of each word behind `from` or `to`; `None` keeps it.
///
/// # Errors
/// The first error of `party`.
pub fn with_parties<E>(text: &str, mut party: impl FnMut(&str) -> Result<Option<String>, E>) -> Result<String, E> {
    let mut before = "";
    let mut words = Vec::new();
    for word in text.split_ascii_whitespace() {
        let other = match before {
            "from" | "to" => party(word)?,
            _ => None,
        };
        words.push(other.unwrap_or_else(|| word.to_owned()));
        before = word;
    }
    Ok(words.join(" "))
}

/// The first word behind `from` or `to` that looks like a name and is that of no member.
#[must_use]
pub fn unknown_name<'a>(text: &'a str, state: &State) -> Option<&'a str> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let is_unknown = |word: &str| {
        let has_meaning =
            matches!(word, "any" | "exit") || word.starts_with("npub1") || word.parse::<PublicKey>().is_ok();
        let known = || state.names.values().any(|name| name.as_str() == word);
        !has_meaning && Name::label(word).is_ok() && !known()
    };
    let parties = words.windows(2).filter(|pair| matches!(pair[0], "from" | "to"));
    parties.map(|pair| pair[1]).find(|word| is_unknown(word))
}

/// The rule as text, with the names of the members that have one.
#[must_use]
pub fn in_words(rule: &Rule, state: &State) -> String {
    let mut text = rule.to_string();
    let to = match &rule.to {
        Target::Members(members) => Some(members),
        Target::Route(_) | Target::Exit => None,
    };
    for selector in [Some(&rule.from), to].into_iter().flatten() {
        if let Selector::Member(key) = selector
            && let Some(name) = state.names.get(key)
        {
            text = text.replace(&key.to_string(), name.as_str());
        }
    }
    text
}
