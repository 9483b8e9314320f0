"""Domain-free training: a loss, batches and stages in; a trained model, a run folder and exact resume out.

`fit` trains, `TrainState` is all that changes, `Stage`, `Optimiser` and `Training` say how, `Shuffled` gives
the batches, `Run` is the folder of a run, `Checkpoints` its states.
`save_model` and `load_model` are for released weights; `make_mesh`, `replicate`, `shard_batch` spread a batch
over devices. Nothing here knows what a flux, a crystal or a sinogram is.
"""

from sciml.train.batches import Shuffled as Shuffled
from sciml.train.checkpoint import Checkpoints as Checkpoints
from sciml.train.checkpoint import load_model as load_model
from sciml.train.checkpoint import read_header as read_header
from sciml.train.checkpoint import save_model as save_model
from sciml.train.fit import Fitted as Fitted
from sciml.train.fit import Training as Training
from sciml.train.fit import fit as fit
from sciml.train.mesh import make_mesh as make_mesh
from sciml.train.mesh import replicate as replicate
from sciml.train.mesh import shard_batch as shard_batch
from sciml.train.optimiser import Optimiser as Optimiser
from sciml.train.optimiser import Stage as Stage
from sciml.train.run import Run as Run
from sciml.train.state import TrainState as TrainState
