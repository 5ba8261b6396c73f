import pytest

from service.app import StartError, create_app
from service.hosts import is_loopback
from service.settings import Settings


class TestCreateApp:
    def test_without_a_database_it_says_what_to_set(self):
        with pytest.raises(StartError, match="TAN_DATABASE_URL"):
            create_app(Settings(database_url=None))

    def test_every_route_documents_its_problems(self):
        app = create_app(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
        for path, operations in app.openapi()["paths"].items():
            for method, operation in operations.items():
                for status, response in operation["responses"].items():
                    if status.startswith(("4", "5")):
                        assert list(response["content"]) == ["application/problem+json"], (
                            method,
                            path,
                            status,
                        )


class TestIsLoopback:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.3", "::1", "[::1]"])
    def test_this_machine(self, host):
        assert is_loopback(host)

    @pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "localhost.evil.example", "10.0.0.1"])
    def test_anything_else(self, host):
        assert not is_loopback(host)
