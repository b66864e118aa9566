"""Sharing of one store by several processes: leases, replicas of views, and requests between processes.

A process that learns holds a lease for each stream that it leads (`lease_manager`), and broadcasts the views of its
learners (`view_broadcast`, encoded by `view_codec`). A process that answers requests keeps a replica of each stream
(`replica`, updated by `replica_manager`). A process that only refines asks for states (`remote_state`). Processes that
learn or refine compute pieces of rounds for one another (`pieces`).
"""

from shoal_service.streams.shared.lease_manager import LeaseCounters, LeaseManager
from shoal_service.streams.shared.piece_messages import PieceCounters
from shoal_service.streams.shared.pieces import PieceSharing
from shoal_service.streams.shared.remote_state import state_from_leader
from shoal_service.streams.shared.replica_manager import ReplicaManager

__all__ = ["LeaseCounters", "LeaseManager", "PieceCounters", "PieceSharing", "ReplicaManager", "state_from_leader"]
