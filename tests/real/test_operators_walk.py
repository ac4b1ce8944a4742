"""An operator who has only the documentation, on Apache's brokers: every line as it is printed.

A lost order is found among dead letters, why it died is seen, it goes back to the group that failed, and
last night is replayed into a second topic.
"""

from pathlib import Path

from tests.docs.markdown_blocks import ROOT
from tests.docs.test_code_blocks import Page, make_place
from tests.real import jars
from tests.real.apache import ApacheCluster

from rocketwire import Admin

PAGES = ROOT / "docs" / "howto"
RELEASE = "5.3.3"
#: What a page writes that starts a cluster of its own.
OWN = "cluster = EmbeddedCluster(brokers=2)\ncluster.start()\n"
GIVEN = """
class cluster:
    name_server = {!r}
    stop = staticmethod(lambda: None)


"""


class RealPage(Page):
    """A page whose programs and commands all talk to one cluster of Apache's, with patience."""

    def __init__(self, path: Path, cluster: ApacheCluster, place: Path) -> None:
        super().__init__(path, cluster, place)
        self.environment |= {"ROCKETWIRE_REQUEST_TIMEOUT": "30"}

    def here_and_now(self, text: str) -> str:
        given = GIVEN.format(self.cluster.name_server)
        return super().here_and_now(text.replace(OWN, given))


def test_the_pages_of_operators_are_true_on_real_brokers(tmp_path: Path):
    jars.require_tools(RELEASE)
    with ApacheCluster(RELEASE, brokers=2) as cluster:
        # Brokers find messages by key that were in a topic of that name before: this one comes first.
        RealPage(PAGES / "admin.md", cluster, make_place(tmp_path / "admin")).run()
        with Admin(cluster.name_server, request_timeout=30.0) as admin:
            admin.delete_topic("orders")
            admin.delete_group("billing", with_topics=True)
        RealPage(PAGES / "dead-letters.md", cluster, make_place(tmp_path / "letters")).run()
