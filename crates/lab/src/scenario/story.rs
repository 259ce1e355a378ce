//! How a run is printed: a line for each step, or a line for each chapter with the figures of its
//! steps below it.

use std::io::{self, Write};

use weft_os::netns::Access;

use super::file::Scenario;
use super::results::{Results, StepResult};
use super::topology::Stage;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line for each step with the time of its end, as it ends.
    Steps,
    /// The drawing, and a line for each chapter, as it ends, with what its steps found.
    Story,
    /// The document [`Results`] at the end, and nothing before.
    Json,
}

/// Prints a run.
pub(super) struct Story<'a> {
    style: Style,
    out: &'a mut dyn Write,
    /// The steps of the chapter in progress; not printed yet.
    chapter: Vec<StepResult>,
}

impl<'a> Story<'a> {
    pub(super) fn new(style: Style, out: &'a mut dyn Write) -> Self {
        Self {
            style,
            out,
            chapter: Vec::new(),
        }
    }

    /// Prints the scenario's name, its purpose and its drawing.
    pub(super) fn title(&mut self, scenario: &Scenario) -> io::Result<()> {
        let title = [scenario.name.as_str(), scenario.about.as_str()];
        let title: Vec<_> = title.into_iter().filter(|text| !text.is_empty()).collect();
        match self.style {
            Style::Steps => self.line(&title.join(": ")),
            Style::Story => self
                .line(&format!(
                    "{}\n\n{}",
                    scenario.about,
                    scenario.drawing.trim_end_matches('\n')
                ))
                .and_then(|()| self.line("")),
            Style::Json => Ok(()),
        }
    }

    /// Prints what was built in `seconds`.
    pub(super) fn built(&mut self, shape: &str, seconds: f64) -> io::Result<()> {
        match self.style {
            Style::Steps => self.line(&format!("{shape}; up after {seconds:.1} s")),
            Style::Story => self.line(&chapter_line(true, "start", seconds, shape)),
            Style::Json => Ok(()),
        }
    }

    /// Prints a step that has ended.
    pub(super) fn step(&mut self, step: &StepResult) -> io::Result<()> {
        match self.style {
            Style::Steps => {
                if let Some(chapter) = &step.chapter {
                    self.line(&format!("-- {chapter}"))?;
                }
                let mark = if step.ok { "ok    " } else { "FAILED" };
                self.line(&format!("{:5.1}  {mark}  {}", step.at + step.seconds, found(step)))
            }
            Style::Story => {
                if step.chapter.is_some() {
                    self.end_chapter()?;
                }
                self.chapter.push(step.clone());
                Ok(())
            }
            Style::Json => Ok(()),
        }
    }

    /// Prints how to look into a network that is kept.
    pub(super) fn hand_over(&mut self, scenario: &Scenario, stage: &Stage, access: Access) -> io::Result<()> {
        self.end_chapter()?;
        let user = match access {
            Access::Privileged => "",
            Access::UserNamespace => " -U --preserve-credentials",
        };
        let mut text = String::from("\nThe network stays until Ctrl-C. Commands inside, for example:\n");
        // A node without peers answers none of these pings.
        let has_peers = |name: &String| {
            scenario
                .hosts
                .get(name)
                .is_some_and(|host| !(host.dials.is_empty() && host.knows.is_empty()))
        };
        let nodes: Vec<_> = stage.nodes().filter(|(name, _)| has_peers(name)).collect();
        for ((_, node), (_, other)) in nodes.iter().zip(nodes.iter().rev()) {
            let Some(daemon) = node.daemon() else { continue };
            text += &format!(
                "  nsenter -t {}{user} -n ping {}\n  weft status --state {}\n",
                daemon.pid(),
                other.identity.address,
                node.identity.state.display(),
            );
        }
        if self.style == Style::Json {
            Ok(())
        } else {
            self.line(&text)
        }
    }

    /// Prints the end of a run.
    pub(super) fn end(&mut self, results: &Results) -> io::Result<()> {
        self.end_chapter()?;
        match self.style {
            Style::Steps => Ok(()),
            Style::Story if results.ok => {
                let (count, seconds) = (results.steps.len(), results.seconds);
                self.line(&format!("\nAll {count} steps passed in {seconds:.1} s."))
            }
            Style::Story => Ok(()),
            Style::Json => {
                let text = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
                self.line(&text)
            }
        }
    }

    fn end_chapter(&mut self) -> io::Result<()> {
        let steps = std::mem::take(&mut self.chapter);
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Ok(());
        };
        let (name, text) = first
            .chapter
            .as_deref()
            .and_then(|chapter| chapter.split_once(": "))
            .unwrap_or_default();
        let ok = steps.iter().all(|step| step.ok);
        self.line(&chapter_line(ok, name, last.at + last.seconds - first.at, text))?;
        for step in steps.iter().filter(|step| !step.ok || is_figure(step)) {
            let mark = if step.ok { "" } else { "FAILED " };
            let text = found(step);
            let text = format!("{mark}{}", text.strip_prefix("expect ").unwrap_or(&text));
            for line in text.lines() {
                self.line(&format!("{:21}{line}", ""))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}").and_then(|()| self.out.flush())
    }
}

/// Whether a step found something that a reader of the story wants to see.
fn is_figure(step: &StepResult) -> bool {
    let record = &step.record;
    let measured = record.load.is_some() || record.output.is_some() || !record.paths.is_empty();
    // A load with a name is shown where it is judged.
    let is_judged = step.name.is_some();
    !is_judged && (measured || (!step.seen.is_empty() && step.seconds >= NOTABLE))
}

/// From this duration on, s, the result of a step without figures is shown.
const NOTABLE: f64 = 0.1;

fn chapter_line(ok: bool, name: &str, seconds: f64, text: &str) -> String {
    let mark = if ok { '\u{2713}' } else { '\u{2717}' };
    format!("  {mark} {name:<6}{seconds:>6.1} s  {text}")
}

/// A step and what it found.
fn found(step: &StepResult) -> String {
    match step.seen.as_str() {
        "" => step.what.clone(),
        seen => format!("{}: {seen}", step.what),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::Record;
    use super::*;

    fn step(chapter: Option<&str>, what: &str, seen: &str, seconds: f64, ok: bool) -> StepResult {
        StepResult {
            number: 1,
            name: None,
            what: what.to_owned(),
            at: 1.0,
            seconds,
            ok,
            seen: seen.to_owned(),
            chapter: chapter.map(str::to_owned),
            record: Record::default(),
        }
    }

    fn printed(style: Style, steps: &[StepResult]) -> String {
        let mut out = Vec::new();
        let mut story = Story::new(style, &mut out);
        steps.iter().for_each(|step| story.step(step).unwrap());
        story.end_chapter().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_chapter_is_a_line_with_the_figures_of_its_steps() {
        let steps = [
            step(Some("cut: a path is cut"), "cut line", "", 0.0, true),
            step(None, "expect path a and b via c", "via c after 0.5 s", 0.5, true),
            step(None, "expect state a to b", "linked", 0.0, true),
            step(Some("heal: and restored"), "heal line", "it is gone", 0.0, false),
        ];
        let expected = "  \u{2713} cut      0.0 s  a path is cut
                     path a and b via c: via c after 0.5 s
  \u{2717} heal     0.0 s  and restored
                     FAILED heal line: it is gone
";
        assert_eq!(printed(Style::Story, &steps), expected);
    }

    #[test]
    fn a_step_is_a_line_below_its_chapter() {
        let steps = [step(Some("cut: a path is cut"), "cut line", "", 0.5, true)];
        assert_eq!(
            printed(Style::Steps, &steps),
            "-- cut: a path is cut\n  1.5  ok      cut line\n"
        );
        assert_eq!(printed(Style::Json, &steps), "");
    }
}
