//! Maps as metrics of Prometheus. While a session runs, a thread of its own answers `GET /metrics` and reads maps for each
//! request; programs and scripts notice nothing of it.

mod http;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use prometheus::TextEncoder;
use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};
use twinbpf_vm::map::MapOps;

use crate::errln;
use crate::error::Error;
use crate::plan::ObjectPlan;
use crate::sys;
use source::Source;

/// Says how many entries of maps no series has.
const LEFT_OUT: &str = "twinbpf_entries_left_out";

/// Time until connections are accepted again after one could not be.
const PAUSE: Duration = Duration::from_secs(1);

/// The maps of a session that are metrics, and the port where they will be served.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
    /// Most series of a map.
    limit: usize,
    sources: Vec<Source>,
    /// The map of each name.
    names: BTreeMap<String, Arc<str>>,
}

/// A thread that serves them until this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Its end wakes the thread.
    _stop: UnixStream,
}

impl Metrics {
    /// Listens, and does not answer yet.
    ///
    /// # Errors
    /// The port is taken, or not allowed.
    pub(crate) fn bind(address: SocketAddr, limit: usize) -> Result<Metrics, Error> {
        let fail = |cause| Error::Listen { address, cause };
        let listener = TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Metrics { listener, address, limit, sources: Vec::new(), names: BTreeMap::new() })
    }

    /// Adds the maps of an object, in its order. Gives those of which there is no metric, with the reason.
    ///
    /// # Errors
    /// Two maps have metrics of one name.
    pub(crate) fn add(&mut self, plan: &ObjectPlan, maps: &[Arc<dyn MapOps>]) -> Result<Vec<String>, Error> {
        let declarations = &plan.declarations;
        let implied = declarations.implied.iter().map(|(_, declared)| declared);
        let mut notes = Vec::new();
        for declared in declarations.declared.iter().chain(implied).filter(|declared| declared.is_served()) {
            let map = &maps[declared.map];
            let name = &map.spec().name;
            let Some(source) = Source::new(declared, map, &plan.object.name) else {
                notes.push(format!("map {name} is no metric: no value of it is a number"));
                continue;
            };
            for metric in source.names() {
                let other = match metric == LEFT_OUT {
                    true => Some("the one of left out entries".into()),
                    false => self.names.insert(metric.clone(), Arc::clone(name)),
                };
                if let Some(other) = other {
                    return Err(Error::Metric { name: metric, maps: [other, Arc::clone(name)] });
                }
            }
            self.sources.push(source);
        }
        Ok(notes)
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// No thread or descriptor can be had, or no map is a metric.
    pub(crate) fn serve(self) -> Result<Serving, Error> {
        if self.sources.is_empty() {
            return Err(Error::NoMetrics);
        }
        let fail = |cause| Error::System { what: "serve metrics", cause };
        let (stop, stopped) = UnixStream::pair().map_err(fail)?;
        errln!("twinbpf: metrics at http://{}/metrics", self.address);
        thread::Builder::new().name("metrics".to_owned()).spawn(move || self.answer(&stopped)).map_err(fail)?;
        Ok(Serving { _stop: stop })
    }

    fn answer(self, stopped: &UnixStream) {
        let mut said = Said::default();
        loop {
            match sys::poll(&[self.listener.as_fd(), stopped.as_fd()], None) {
                Ok(ready) if ready[1] => return,
                Ok(_) => {}
                Err(error) => return log::error!("metrics are not served any more: {error}"),
            }
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(error) = http::answer(&stream, || self.page(&mut said)) {
                        log::debug!("a request of {peer} for metrics: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    said.once(&format!("a connection is not accepted: {error}"));
                    // It stays ready: without descriptors, for one.
                    if sys::poll(&[stopped.as_fd()], Some(PAUSE)).is_ok_and(|ready| ready[0]) {
                        return;
                    }
                }
            }
        }
    }

    /// The metrics of all maps as text. One that cannot be read is left out.
    fn page(&self, said: &mut Said) -> Result<String, String> {
        let (mut families, mut left_out) = (Vec::new(), Vec::new());
        for source in &self.sources {
            let name = source.map();
            let (of_map, count) = match source.families(self.limit) {
                Ok(families) => families,
                Err(why) => {
                    said.once(&format!("map {name} is left out: {why}"));
                    continue;
                }
            };
            families.extend(of_map.into_iter().filter(|family| !family.get_metric().is_empty()));
            if count > 0 {
                said.once(&format!(
                    "entries of map {name} are left out: there are {} series of a map at most (--metrics-series)",
                    self.limit
                ));
            }
            left_out.push((source.left_out_labels(), count));
        }
        if left_out.iter().any(|(_, count)| *count > 0) {
            families.push(left_out_family(left_out));
        }
        TextEncoder::new().encode_to_string(&families).map_err(|error| error.to_string())
    }
}

/// How many entries of each map no series has.
fn left_out_family(counts: Vec<(Vec<LabelPair>, usize)>) -> MetricFamily {
    let metrics = counts.into_iter().map(|(labels, count)| {
        let mut gauge = Gauge::default();
        gauge.set_value(count as f64);
        let mut metric = Metric::from_gauge(gauge);
        metric.set_label(labels);
        metric
    });
    let mut family = MetricFamily::default();
    family.set_name(LEFT_OUT.to_owned());
    family.set_help("Entries of a map that are no series, for there are too many.".to_owned());
    family.set_field_type(MetricType::GAUGE);
    family.set_metric(metrics.collect());
    family
}

/// Warnings that were given.
#[derive(Default)]
struct Said(BTreeSet<String>);

impl Said {
    fn once(&mut self, what: &str) {
        if self.0.insert(what.to_owned()) {
            errln!("twinbpf: warning: metrics: {what}");
        }
    }
}
