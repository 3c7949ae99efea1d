//! Arguments of `twinbpf map`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;

/// `twinbpf map`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf map list                        every map: number, kind, name, types, who holds it
  twinbpf map dump counts                 keys and values by their types
  twinbpf map dump /sys/fs/bpf/counts --sum --json
  twinbpf map get counts '{ .pid = 1, .comm = \"init\" }'
  twinbpf map set 12 0 .limit=100         one variable of a data section, one member of a struct
  twinbpf map set table '{\"port\": 80}' '{\"name\": \"http\", \"hits\": 0}'
  twinbpf map watch counts -i 2           what changed, every two seconds

MAP is a number, a name that only one map has (the kernel keeps 15 letters), or a path where it is
pinned; maps of a running `twinbpf run` are among them. Keys and values are written as they are
printed, as C initialisers or as JSON; what is left out is zero. Without types they are a number,
or bytes: hex:0a000001. Ring buffers cannot be watched: reading would take records from their reader.")]
pub(crate) struct MapArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: MapCommand,
}

/// What can be done with maps.
#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Print what maps there are.
    List(MapListArgs),
    /// Print every element.
    Dump(MapDumpArgs),
    /// Print the element of a key; of a queue or stack, the next one.
    Get(MapGetArgs),
    /// Write an element.
    Set(MapSetArgs),
    /// Print every element, then again and again what changed: + new, - gone, before -> now.
    Watch(MapWatchArgs),
}

/// `twinbpf map list`.
#[derive(Args, Debug)]
pub(crate) struct MapListArgs {
    /// Only maps whose name has this in it.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print a JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which map, and how to print it.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Number, name, or path of the map.
    #[arg(value_name = "MAP")]
    pub(crate) map: String,
    /// One value in place of one for each CPU: numbers added up.
    #[arg(long)]
    pub(crate) sum: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `twinbpf map dump`.
#[derive(Args, Debug)]
pub(crate) struct MapDumpArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// `twinbpf map get`.
#[derive(Args, Debug)]
pub(crate) struct MapGetArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// The key; none for a queue or stack.
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: Option<String>,
}

/// `twinbpf map set`.
#[derive(Args, Debug)]
pub(crate) struct MapSetArgs {
    /// Number, name, or path of the map.
    #[arg(value_name = "MAP")]
    pub(crate) map: String,
    /// The key; none for a queue or stack.
    #[arg(value_name = "[KEY] VALUE", required = true, num_args = 1..=2, allow_negative_numbers = true)]
    pub(crate) element: Vec<String>,
    /// Only if there is no such key.
    #[arg(long, conflicts_with = "exist")]
    pub(crate) noexist: bool,
    /// Only if there is such a key.
    #[arg(long)]
    pub(crate) exist: bool,
}

/// `twinbpf map watch`.
#[derive(Args, Debug)]
pub(crate) struct MapWatchArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Time between two reads: 500ms, 2s; a bare number is seconds.
    #[arg(short, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) interval: Duration,
    /// End after this many reads.
    #[arg(short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}
