//! `weft lab up`, `exec` and `down`: a lab that persists.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weft_lab::scenario::hold::{self, HoldError, Lab};
use weft_lab::scenario::source::Source;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Out;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// A scenario's file, or the name of a built-in one (`weft lab list`); its steps are not run
    #[arg(value_name = "FILE|NAME")]
    from: String,
    /// Replace a value of the file: link.uplink.delay=50ms
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the document weft.lab-up/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// The host
    host: String,
    /// The command and its arguments [default: a shell]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Hold {
    from: String,
    #[arg(long)]
    set: Vec<String>,
    #[arg(long)]
    folder: PathBuf,
}

pub(crate) fn up(args: &Up) -> Result<(), Failure> {
    // Faults of the file are reported here, not by the holder.
    let source = Source::open(&args.from, &args.set)?;
    let folder = hold::folder()?;
    if Lab::find(&folder).is_ok() {
        return Err(HoldError::Up.into());
    }
    let text = start(args, &folder)?;
    let lab: Lab = serde_json::from_str(&text).map_err(|error| HoldError::NotUp(error.to_string()))?;
    let mut out = Out::new();
    if args.json {
        return out.text(&text);
    }
    out.text(&describe(&source, &lab))
}

/// Starts the holder, and waits for its document.
fn start(args: &Up, folder: &Path) -> Result<String, Failure> {
    let log = folder.join("holder.log");
    let failed = |source| HoldError::Process {
        what: "the lab cannot be started".to_owned(),
        source,
    };
    let errors = File::create(&log).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(ToolFailure::OwnPath)?);
    command
        .args(["lab", "hold"])
        .arg(&args.from)
        .arg("--folder")
        .arg(folder);
    command.args(args.set.iter().flat_map(|setting| ["--set", setting]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut holder = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = holder.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    if line.is_empty() {
        let _ = holder.wait();
        let said = fs::read_to_string(&log).unwrap_or_default();
        let said = said.trim().trim_start_matches("weft: ").to_owned();
        return Err(HoldError::NotUp(said).into());
    }
    Ok(line)
}

fn describe(source: &Source, lab: &Lab) -> String {
    let mut text = format!("{} is up: {}\n\n", lab.scenario, source.scenario.about);
    for host in &lab.hosts {
        let node = host.node.as_ref();
        let address = node.map_or("no node".to_owned(), |node| node.address.to_string());
        text += &format!("  {:<12}  {address}\n", host.name);
        if let Some(node) = node {
            text += &format!("  {:<12}  weft status --state {}\n", "", node.state.display());
        }
    }
    let first = lab.hosts.first().map_or("HOST", |host| &host.name);
    let other = lab.hosts.iter().skip(1).find_map(|host| host.node.as_ref());
    let ping = other.map_or("ip address".to_owned(), |node| format!("ping -c 3 {}", node.address));
    text += &format!("\nA shell on a host:  weft lab exec {first}\n");
    text += &format!("A command there:    weft lab exec {first} -- {ping}\n");
    text += "The end:            weft lab down\n";
    text
}

pub(crate) fn exec(args: &Exec) -> Result<(), Failure> {
    let lab = Lab::find(&hold::folder()?)?;
    let mut command = match args.command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
    };
    command.env("WEFT_LAB_HOST", &args.host);
    // With it, `weft` in the command addresses the host's own node.
    let host = lab.hosts.iter().find(|host| host.name == args.host);
    if let Some(node) = host.and_then(|host| host.node.as_ref()) {
        command.env("WEFT_STATE", &node.state);
    }
    // Ctrl-C is for the command; this process remains to return the command's exit status.
    let mut interrupt = None;
    let status = lab.exec(&args.host, command, || interrupt = Interrupt::catch().ok())?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(ToolFailure::Ended(u8::try_from(code).unwrap_or(1)).into()),
        (None, signal) => {
            Err(ToolFailure::Ended(signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(1)).into())
        }
    }
}

pub(crate) fn down() -> Result<(), Failure> {
    let text = match hold::down(&hold::folder()?)? {
        true => "the lab is down\n",
        false => "the lab had ended already; its remains are removed\n",
    };
    Out::new().text(text)
}

pub(crate) fn hold(args: &Hold) -> Result<(), Failure> {
    let source = Source::open(&args.from, &args.set)?;
    let weft = std::env::current_exe().map_err(ToolFailure::OwnPath)?;
    hold::hold(&source, &weft, &args.folder, &mut io::stdout().lock())?;
    Ok(())
}
