"""SIPMobility: a SIP user agent for applications whose users move, with or without events (SPEC C-01).

Names are those of the paper. Sessions and statuses are the machine's own values (:mod:`wanderbus.mobility`); the
managers are thin wrappers of it, with futures and listeners (docs/decisions/0011-sip-mobility-names.md).
"""

from wanderbus.api.sip_mobility.facade import SIPMobility
from wanderbus.api.sip_mobility.helper import SIPHelper
from wanderbus.api.sip_mobility.listener import SIPMobilityListener, SIPMobilityListenerManager
from wanderbus.api.sip_mobility.media import SDPMediaDescriptionData, local_media, remote_media
from wanderbus.api.sip_mobility.message_listener import SIPMessageListener
from wanderbus.api.sip_mobility.properties_manager import PropertiesManager, SIPMobilityProperties
from wanderbus.api.sip_mobility.registration_manager import RegistrationManager
from wanderbus.api.sip_mobility.servers import SIPServers
from wanderbus.api.sip_mobility.session_manager import SessionManager
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus, SIPSession

__all__ = [
    "PropertiesManager",
    "RegistrationManager",
    "RemoteMediaStatus",
    "SDPMediaDescriptionData",
    "SIPCommunicationStatus",
    "SIPHelper",
    "SIPMessageListener",
    "SIPMobility",
    "SIPMobilityListener",
    "SIPMobilityListenerManager",
    "SIPMobilityProperties",
    "SIPServers",
    "SIPSession",
    "SessionManager",
    "local_media",
    "remote_media",
]
