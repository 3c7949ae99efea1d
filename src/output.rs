//! Where the output of programs goes, and what was lost of what they sent.

use std::io::Write;

use twinbpf_vm::host::Loss;

use crate::error::Error;
use crate::instance::{Instance, InstancePre};

impl<T: Send + 'static> InstancePre<T> {
    /// As [`InstancePre::instance`], with another place for what programs print. [`Instance::set_trace_output`] has that of
    /// `bpf_trace_printk`.
    ///
    /// # Errors
    /// As there.
    pub fn instance_with_output(&self, data: T, output: Box<dyn Write + Send>) -> Result<Instance<T>, Error> {
        self.make(None, data, output)
    }
}

impl<T: Send + 'static> Instance<T> {
    /// Where `bpf_trace_printk` writes, in the kernel the trace pipe: standard error, unless this says otherwise. What
    /// programs write may have any bytes, also those that control a terminal.
    pub fn set_trace_output(&mut self, output: Box<dyn Write + Send>) {
        self.machine().runtime_mut().trace = output;
    }

    /// What maps had no room for since it was made, in the order of the first time: records for full buffers, elements of full
    /// maps, what is beyond the 16 MiB a map that are kept for [`InstancePre::take_sent`]. Programs get an errno, which they
    /// may ignore.
    pub fn losses(&mut self) -> &[Loss] {
        self.machine().runtime().losses()
    }
}
