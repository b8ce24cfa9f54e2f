"""The message of tf that is used here is the one that a robot speaks."""

import rclpy
from tf2_msgs.msg import TFMessage

JAZZY_TYPE_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"


def test_tf_messages_have_the_type_hash_of_jazzy() -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    try:
        node = rclpy.create_node("speaker", context=context)
        node.create_publisher(TFMessage, "/tf", 10)
        infos = node.get_publishers_info_by_topic("/tf")
        (info,) = [info for info in infos if info.node_name == "speaker"]
        assert str(info.topic_type_hash) == JAZZY_TYPE_HASH
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)
